/* place.h - remote addresses as text: which there are, what of them may be shown, and whether one lies in a place.
 *
 * A place is what the options `allow` and `media_root` hold beside folders:
 *
 *     s3://bucket            every object of the bucket
 *     s3://bucket/prefix     prefix itself, and keys that start with prefix/
 *     https://host[:port]    every URL of this scheme, host and port
 *
 * Nothing is decoded or normalised: an address reaches the store as it is compared here.  Folders are for who knows links
 * (source/places.h). */
#ifndef STK_SCHEMA_PLACE_H
#define STK_SCHEMA_PLACE_H

#include <stdbool.h>

#include "base/bytes.h"

/* Whether text starts with s3://, http:// or https://, in letters of either case. */
bool stk_address_is_remote(stk_str text);
bool stk_address_is_s3(stk_str text);

/* The address itself, or, of a file in a tar (tar://NAME::ADDRESS), that of the tar.  A slice of address. */
stk_str stk_address_container(stk_str address);

/* Whether the bytes of an address come from a store: it is remote, or names a file in a tar that is (tar:...::s3://...). */
bool stk_address_is_on_store(stk_str address);

/* What people may see: a URL, or that of a tar, without its query, which may hold a signature; "a URL" for one with a name
 * and password in it. */
stk_str stk_address_shown(stk_str address);

/* Whether a remote address lies in a place, or on the same host as it. */
bool stk_place_holds(stk_str place, stk_str address);

/* The place to allow for an address: its bucket, or scheme, host and port.  A slice of address. */
stk_str stk_place_of(stk_str address);

#endif
