/* stoker.h - all of libstoker's interface. */
#ifndef STOKER_STOKER_H
#define STOKER_STOKER_H

#include <stoker/batch.h>
#include <stoker/client.h>
#include <stoker/fetch_bench.h>
#include <stoker/index.h>
#include <stoker/loader.h>
#include <stoker/metrics.h>
#include <stoker/options.h>
#include <stoker/parcel.h>
#include <stoker/plan.h>
#include <stoker/sample.h>
#include <stoker/state.h>
#include <stoker/status.h>

#endif
