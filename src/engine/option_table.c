/* option_table.c - the one table of options (docs/options.md).  All else about options follows from it. */
#include "engine/option_table.h"

#include <pthread.h>
#include <string.h>

#include "base/memory.h"

#define TOP(member) offsetof(stk_options, member), 0
#define DATA(member) offsetof(stk_data_options, member), 0
#define SET(member)                                                                                          \
    offsetof(stk_options, set) + offsetof(stk_set_options, member), offsetof(stk_set_options, member)
#define LIMIT(member) offsetof(stk_options, limits) + offsetof(stk_limit_options, member), 0
#define S true
#define NOT_S false
#define PER_SET true
#define WHOLE_RUN false

/* One option a line, however long: a table reads by its columns. */
/* clang-format off */
static const stk_option_row rows[] = {
    /* {name, type, default, choices, min, max, stream, per set, help}, kind, place */
    {{"model", "path", "", "", 0, 0, S, WHOLE_RUN, "checkpoint folder: config.json, preprocessor_config.json, tokenizer.json, chat template"}, STK_KIND_STRING, TOP(model)},
    {{"data", "list", "", "", 0, 0, S, WHOLE_RUN, "the data sets, each with the keys below"}, STK_KIND_GROUP, TOP(data)},
    {{"data[].name", "string", "", "", 0, 0, S, WHOLE_RUN, "name in ids and reports; default: the last part of the first path, without its ending: docs of a/docs.jsonl.gz and of a/docs/"}, STK_KIND_STRING, DATA(name)},
    {{"data[].path", "paths", "", "", 0, 0, NOT_S, WHOLE_RUN, "manifests: a file, a list, a glob, a folder (with its folders) or a prefix (set/train-) of .jsonl, .json and .ndjson; each JSONL or a JSON array, plain, gzip or zstd; of these, s3://BUCKET/KEY too"}, STK_KIND_LIST, DATA(path)},
    {{"data[].format", "choice", "", "llava | openai | ms-swift | sharegpt", 0, 0, S, WHOLE_RUN, "dialect of the records; default: told from each record"}, STK_KIND_CHOICE, DATA(format)},
    {{"data[].media_root", "path", "", "", 0, 0, NOT_S, WHOLE_RUN, "folder, or s3:// prefix, that relative media paths start from; default: the manifest's own"}, STK_KIND_STRING, DATA(media_root)},
    {{"data[].facts", "path", "", "", 0, 0, NOT_S, WHOLE_RUN, "JSONL with path, width and height of media, which then need no header read; what a record states itself comes first"}, STK_KIND_STRING, DATA(facts)},
    {{"data[].columns", "map", "", "", 0, 0, S, WHOLE_RUN, "where a record keeps what: id, messages, images, videos, audios, tools, system"}, STK_KIND_MAP, DATA(columns)},
    {{"data[].roles", "map", "", "", 0, 0, S, WHOLE_RUN, "further names of roles, each to system, user, assistant or tool"}, STK_KIND_MAP, DATA(roles)},
    {{"data[].system", "string", "", "", 0, 0, S, WHOLE_RUN, "system prompt of records without a system turn, in place of the template's default"}, STK_KIND_STRING, DATA(system)},
    {{"data[].where", "string", "", "", 0, 0, S, WHOLE_RUN, "which usable records take part, by their facts: images > 0 and tokens < 4096 (docs/manifests.md lists the names)"}, STK_KIND_STRING, DATA(where)},
    {{"data[].first", "int", "all", "", 1, INT64_MAX, S, WHOLE_RUN, "only so many records, in the order of the files, of those that are usable and that `where` lets pass"}, STK_KIND_INT, DATA(first)},
    {{"data[].weight", "decimal", "", "", 0, 1000000, S, WHOLE_RUN, "share of the samples that come from this set; for all sets, or for none"}, STK_KIND_DECIMAL, DATA(weight)},
    {{"data[].epochs", "decimal", "1", "", 0, 1000000, S, WHOLE_RUN, "passes over this set in an epoch, such as 1.5; not beside weights"}, STK_KIND_DECIMAL, DATA(epochs)},
    {{"eval", "map", "", "", 0, 0, NOT_S, WHOLE_RUN, "the same keys for evaluation, over those of the run; the order of the files, one epoch (`--split eval`)"}, STK_KIND_GROUP, TOP(eval)},
    {{"allow", "paths", "[]", "", 0, 0, NOT_S, WHOLE_RUN, "where media may come from beside media_root and the manifest's own place: folders, s3://BUCKET, s3://BUCKET/PREFIX, https://HOST"}, STK_KIND_LIST, TOP(allow)},
    {{"batch", "schedule", "", "", 1, 1 << 20, S, WHOLE_RUN, "rows per step, over all ranks; a number, or [[0, 64], [1000, 128]]: from a step on"}, STK_KIND_SCHEDULE, TOP(batch)},
    {{"micro_batch", "int", "all", "", 1, 1 << 20, NOT_S, WHOLE_RUN, "rows per micro-batch of a rank; all: one micro-batch a step"}, STK_KIND_INT, TOP(micro_batch)},
    {{"steps", "int", "auto", "", 1, INT64_MAX, S, WHOLE_RUN, "length of the run in steps; auto: by epochs"}, STK_KIND_INT, TOP(steps)},
    {{"epochs", "int", "1", "", 1, 1000000, S, WHOLE_RUN, "length of the run in passes over the data, unless steps is given"}, STK_KIND_INT, TOP(epochs)},
    {{"shuffle", "bool", "true", "", 0, 0, S, WHOLE_RUN, "a new order in each epoch, computed from seed; false: the order of the files"}, STK_KIND_BOOL, TOP(shuffle)},
    {{"seed", "int", "0", "", 0, INT64_MAX, S, WHOLE_RUN, "of the order"}, STK_KIND_INT, TOP(seed)},
    {{"layout", "choice", "padded", "padded | flat | packed", 0, 0, S, WHOLE_RUN, "a sample a row, padded to one length; joined into one row; or several samples in rows of row_tokens"}, STK_KIND_CHOICE, TOP(layout)},
    {{"row_tokens", "int", "16384", "", 1, 1 << 22, S, WHOLE_RUN, "packed: length of each row"}, STK_KIND_INT, TOP(row_tokens)},
    {{"segment_multiple", "int", "1", "", 1, 1 << 20, S, WHOLE_RUN, "packed: each sample's place is a multiple of it (tensor and context parallel)"}, STK_KIND_INT, TOP(segment_multiple)},
    {{"window", "int", "4096", "", 1, 1 << 20, S, WHOLE_RUN, "packed: samples that are packed together"}, STK_KIND_INT, TOP(window)},
    {{"weights", "choice", "samples", "samples | tokens", 0, 0, S, WHOLE_RUN, "what the weights of data sets are shares of"}, STK_KIND_CHOICE, TOP(weights)},
    {{"balance", "choice", "auto", "auto | none | model | model+vision", 0, 0, S, WHOLE_RUN, "rows of a step are dealt to ranks so that the language model, or vision tower too, has the same to do on each; auto: model+vision, none with index: stream"}, STK_KIND_CHOICE, TOP(balance)},
    {{"modality", "choice", "mixed", "mixed | aligned", 0, 0, S, WHOLE_RUN, "aligned: a micro-batch has media on all ranks or on none"}, STK_KIND_CHOICE, TOP(modality)},
    {{"filler_image", "bool", "false", "", 0, 0, S, WHOLE_RUN, "a micro-batch without media carries a small image of no loss"}, STK_KIND_BOOL, TOP(filler_image)},
    {{"max_tokens", "int", "auto", "", 1, 1 << 30, S, WHOLE_RUN, "limit of a sample in tokens; auto: the model's"}, STK_KIND_INT, TOP(max_tokens)},
    {{"pad_to", "int", "auto", "", 1, 1 << 30, S, WHOLE_RUN, "padded: length of each row; auto: the longest of the micro-batch"}, STK_KIND_INT, TOP(pad_to)},
    {{"pad_multiple", "int", "1", "", 1, 1 << 20, S, WHOLE_RUN, "row lengths are multiples of it"}, STK_KIND_INT, TOP(pad_multiple)},
    {{"overlong", "choice", "drop", "drop | shrink | error", 0, 0, S, PER_SET, "samples over max_tokens: left out and counted; their images made smaller until they fit; or refused"}, STK_KIND_CHOICE, SET(overlong)},
    {{"uneven", "choice", "filler", "filler | error", 0, 0, S, WHOLE_RUN, "a batch that the ranks do not divide, and a last step that is not full: filled up with rows of weight 0, or refused"}, STK_KIND_CHOICE, TOP(uneven)},
    {{"targets", "choice", "hf", "hf | shifted", 0, 0, NOT_S, WHOLE_RUN, "labels as they are, or moved by one inside each sample, with loss_mask"}, STK_KIND_CHOICE, TOP(targets)},
    {{"positions", "choice", "auto", "auto | plain | mrope", 0, 0, NOT_S, WHOLE_RUN, "position_ids: counted in each sample, [b, s], or M-RoPE's three planes; auto: plain for targets: shifted with layout: padded, else mrope, with transformers' plane before it where it tells samples apart"}, STK_KIND_CHOICE, TOP(positions)},
    {{"pixels", "choice", "uint8", "uint8 | float32 | bfloat16", 0, 0, NOT_S, WHOLE_RUN, "pixel_bytes, or pixel_values ready-made"}, STK_KIND_CHOICE, TOP(pixels)},
    {{"profile", "choice", "hf", "hf | pil-11 | pil-12 | pil-13 | pil | qwen-vl-utils", 0, 0, S, WHOLE_RUN, "whose pixels: transformers' processor, Pillow of a release (pil: pil-13), or qwen_vl_utils"}, STK_KIND_CHOICE, TOP(profile)},
    {{"orientation", "choice", "auto", "auto | apply | ignore", 0, 0, S, PER_SET, "orientation that a picture's metadata states; auto: as the profile, which applies it but for qwen-vl-utils"}, STK_KIND_CHOICE, SET(orientation)},
    {{"alpha", "choice", "auto", "auto | drop | white", 0, 0, S, PER_SET, "transparency of a picture: without effect, or every kind on white; auto: as the profile, which drops it but for qwen-vl-utils, where RGBA is put on white"}, STK_KIND_CHOICE, SET(alpha)},
    {{"min_pixels", "int", "auto", "", 1, 1 << 30, S, PER_SET, "lower limit of an image after the resize; auto: the checkpoint's"}, STK_KIND_INT, SET(min_pixels)},
    {{"max_pixels", "int", "auto", "", 1, 1 << 30, S, PER_SET, "upper limit of an image after the resize; auto: the checkpoint's"}, STK_KIND_INT, SET(max_pixels)},
    {{"labels", "choice", "answers", "answers | last | finetune", 0, 0, S, PER_SET, "what is trained; a turn's own `train` or `loss` key wins"}, STK_KIND_CHOICE, SET(labels)},
    {{"control_tokens", "choice", "plain", "plain | sanitize | reference", 0, 0, S, PER_SET, "control tokens typed in the data: text outside answers, text everywhere, or live"}, STK_KIND_CHOICE, SET(control_tokens)},
    {{"allow_control_tokens", "list", "[]", "", 0, 0, S, PER_SET, "tokens that stay live under plain and sanitize"}, STK_KIND_LIST, SET(allow_control_tokens)},
    {{"tag_space", "choice", "keep", "keep | strip", 0, 0, S, PER_SET, "white space beside <image> tags; strip: as qwen-vl-finetune"}, STK_KIND_CHOICE, SET(tag_space)},
    {{"template", "template", "", "", 0, 0, S, PER_SET, "a published name, or a turn format; default: the checkpoint's"}, STK_KIND_TEMPLATE, SET(chat_template)},
    {{"index", "choice", "auto", "auto | require | verify | stream", 0, 0, S, WHOLE_RUN, "build what is missing, refuse to run without, or decode every medium once; stream, which is another stream: start at once, find facts when samples are drawn (docs/index-format.md)"}, STK_KIND_CHOICE, TOP(index)},
    {{"index_dir", "path", "", "", 0, 0, NOT_S, WHOLE_RUN, "folder of the index files, or an s3:// prefix; default: beside the manifest, of one on S3 in ~/.cache/stoker"}, STK_KIND_STRING, TOP(index_dir)},
    {{"errors.unusable", "share", "0.01", "", 0, 1, NOT_S, WHOLE_RUN, "share of unusable records of a data set that refuses the run, above 10"}, STK_KIND_SHARE, TOP(errors_unusable)},
    {{"errors.masked", "share", "0.001", "", 0, 1, NOT_S, WHOLE_RUN, "share of masked samples of a data set that stops the run, above 10"}, STK_KIND_SHARE, TOP(errors_masked)},
    {{"dead_letter", "path", "", "", 0, 0, NOT_S, WHOLE_RUN, "file that masked samples are appended to, one JSON object a line"}, STK_KIND_STRING, TOP(dead_letter)},
    {{"memory", "size", "auto", "", 1 << 20, INT64_MAX, NOT_S, WHOLE_RUN, "one budget for all; auto: a quarter of what the control group, or else the machine, allows"}, STK_KIND_SIZE, TOP(memory_bytes)},
    {{"workers", "workers", "auto", "", 1, 1024, NOT_S, WHOLE_RUN, "threads that make; auto: one a CPU; inline: none, all in next"}, STK_KIND_WORKERS, TOP(workers)},
    {{"engine", "choice", "process", "process | inprocess", 0, 0, NOT_S, WHOLE_RUN, "where batches are made for a trainer: in a process of a machine and run, or on threads of the trainer's own, for debugging (docs/engine-process.md)"}, STK_KIND_CHOICE, TOP(engine)},
    {{"run", "string", "", "", 0, 0, NOT_S, WHOLE_RUN, "name of the run, which its processes find their engine by; default: the launcher's (torchrun, SLURM)"}, STK_KIND_STRING, TOP(run)},
    {{"placement", "choice", "local", "local | spread | nodes", 0, 0, NOT_S, WHOLE_RUN, "where engines on a Ray cluster are: one on each rank's node, one on each node, or on nodes that stoker.ray.Loader is given (docs/ray.md)"}, STK_KIND_CHOICE, TOP(placement)},
    {{"nice", "int", "0", "", 0, 19, NOT_S, WHOLE_RUN, "how far the threads of the engine process stand back behind others"}, STK_KIND_INT, TOP(nice)},
    {{"cpus", "string", "", "", 0, 0, NOT_S, WHOLE_RUN, "CPUs that the engine process may use, as 8-15,20; default: those of the process that starts it"}, STK_KIND_STRING, TOP(cpus)},
    {{"prefetch", "int", "auto", "", 1, 4096, NOT_S, WHOLE_RUN, "ready micro-batches a rank; auto: up to 4, as far as memory goes"}, STK_KIND_INT, TOP(prefetch)},
    {{"fetch_ahead", "size", "auto", "", 1, INT64_MAX, NOT_S, WHOLE_RUN, "compressed bytes that are fetched ahead; auto: up to 256 MiB, as far as memory goes"}, STK_KIND_SIZE, TOP(fetch_ahead_bytes)},
    {{"keep", "int", "2", "", 1, 4096, NOT_S, WHOLE_RUN, "micro-batches that the readers of a rank hold when one asks for the next"}, STK_KIND_INT, TOP(keep)},
    {{"timeout", "seconds", "300 s", "", 1, 31536000, NOT_S, WHOLE_RUN, "longest wait for a batch before an error that says for what"}, STK_KIND_SECONDS, TOP(timeout_s)},
    {{"endpoint", "string", "", "", 0, 0, NOT_S, WHOLE_RUN, "address of the object store, as https://store.example:9000; default: the environment, the profile, Amazon (docs/s3.md)"}, STK_KIND_STRING, TOP(endpoint)},
    {{"region", "string", "", "", 0, 0, NOT_S, WHOLE_RUN, "of the buckets; default: the environment, the profile, us-east-1; a store that names another is believed"}, STK_KIND_STRING, TOP(region)},
    {{"profile_name", "string", "", "", 0, 0, NOT_S, WHOLE_RUN, "profile of ~/.aws/credentials and ~/.aws/config; default: AWS_PROFILE"}, STK_KIND_STRING, TOP(profile_name)},
    {{"anonymous", "bool", "false", "", 0, 0, NOT_S, WHOLE_RUN, "ask without credentials, for public buckets"}, STK_KIND_BOOL, TOP(anonymous)},
    {{"requester_pays", "choice", "false", "false | true | requester", 0, 0, NOT_S, WHOLE_RUN, "say that the owner of the credentials pays for requests"}, STK_KIND_CHOICE, TOP(requester_pays)},
    {{"addressing", "choice", "auto", "auto | path | virtual", 0, 0, NOT_S, WHOLE_RUN, "where a request names the bucket; auto: in the host at Amazon, in the path elsewhere"}, STK_KIND_CHOICE, TOP(addressing)},
    {{"ca", "path", "", "", 0, 0, NOT_S, WHOLE_RUN, "PEM file of the certificates to trust, in place of the system's"}, STK_KIND_STRING, TOP(ca)},
    {{"io_threads", "int", "1", "", 1, 64, NOT_S, WHOLE_RUN, "threads that talk to stores, each with its own connections; more where TLS fills one"}, STK_KIND_INT, TOP(io_threads)},
    {{"hedge", "bool", "true", "", 0, 0, NOT_S, WHOLE_RUN, "ask a second time for what is later than 97 of 100 requests, for at most 5 of 100"}, STK_KIND_BOOL, TOP(hedge)},
    {{"cache.path", "path", "", "", 0, 0, NOT_S, WHOLE_RUN, "folder of a local disk that keeps objects, shared by the runs of a machine"}, STK_KIND_STRING, TOP(cache_path)},
    {{"cache.bytes", "size", "", "", 0, INT64_MAX, NOT_S, WHOLE_RUN, "what the cache may hold"}, STK_KIND_SIZE, TOP(cache_bytes)},
    {{"prices.request", "decimal", "", "", 0, 1000000, NOT_S, WHOLE_RUN, "of 1,000 requests, for the estimate in the metrics"}, STK_KIND_DECIMAL, TOP(price_request)},
    {{"prices.transfer", "decimal", "", "", 0, 1000000, NOT_S, WHOLE_RUN, "of 1 GB (10^9 bytes) that is fetched, likewise"}, STK_KIND_DECIMAL, TOP(price_transfer)},
    {{"limits.media_bytes", "size", "256MiB", "", 1, INT64_MAX / 4, S, WHOLE_RUN, "compressed bytes of one medium"}, STK_KIND_SIZE, LIMIT(media_bytes)},
    {{"limits.media_pixels", "int", "178956970", "", 1, 1 << 30, S, WHOLE_RUN, "pixels of one image as it is stored"}, STK_KIND_INT, LIMIT(media_pixels)},
    {{"limits.record_bytes", "size", "64MiB", "", 1, 1 << 30, S, WHOLE_RUN, "bytes of one record"}, STK_KIND_SIZE, LIMIT(record_bytes)},
    {{"limits.json_depth", "int", "64", "", 1, 1024, S, WHOLE_RUN, "nesting of a record"}, STK_KIND_INT, LIMIT(json_depth)},
    {{"limits.media_per_record", "int", "4096", "", 1, 65536, S, WHOLE_RUN, "media of one record"}, STK_KIND_INT, LIMIT(media_per_record)},
    {{"limits.text_bytes", "size", "8MiB", "", 1, 1 << 30, S, WHOLE_RUN, "rendered text of one record"}, STK_KIND_SIZE, LIMIT(text_bytes)},
    {{"limits.jpeg_scans", "int", "100", "", 1, 65536, S, WHOLE_RUN, "scans of a progressive JPEG"}, STK_KIND_INT, LIMIT(jpeg_scans)},
};
/* clang-format on */

enum { ROW_COUNT = sizeof rows / sizeof *rows };
_Static_assert(ROW_COUNT <= 8 * sizeof ((stk_options *)0)->stated, "a bit for each row");

/* Names of the design that a later release brings. */
static const char *const later[] = {"video_text"};

bool stk_option_allows(const stk_option *option, const char *value)
{
    const size_t length = strlen(value);
    for (const char *at = option->choices; *at;) {
        const char *const bar = strstr(at, " | ");
        const size_t size = bar ? (size_t)(bar - at) : strlen(at);
        if (length == size && strncmp(value, at, size) == 0) return true;
        at += bar ? size + 3 : size;
    }
    return false;
}

const stk_option_row *stk_option_rows(size_t *count)
{
    *count = ROW_COUNT;
    return rows;
}

/* The public columns, one row behind the other: copied once, because they stand inside larger rows. */
static stk_option shown_rows[ROW_COUNT];
static pthread_once_t shown_once = PTHREAD_ONCE_INIT;

static void copy_shown(void)
{
    for (size_t i = 0; i < ROW_COUNT; i++) shown_rows[i] = rows[i].shown;
}

const stk_option *stk_option_table(size_t *count)
{
    pthread_once(&shown_once, copy_shown);
    *count = ROW_COUNT;
    return shown_rows;
}

const stk_option_row *stk_option_find(const char *name)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (strcmp(rows[i].shown.name, name) == 0) return &rows[i];
    return NULL;
}

/* Edits that turn a into b; names are short. */
static size_t distance(const char *a, const char *b)
{
    size_t row[80];
    const size_t width = strlen(b);
    if (width >= 80 || strlen(a) >= 80) return SIZE_MAX;
    for (size_t j = 0; j <= width; j++) row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            const size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = row[j] + 1 < row[j - 1] + 1 ? row[j] + 1 : row[j - 1] + 1;
            if (change < row[j]) row[j] = change;
        }
    }
    return row[width];
}

stk_status stk_option_unknown(const char *prefix, const char *name, stk_error *err)
{
    const size_t prefix_length = strlen(prefix);
    const bool in_set = strcmp(prefix, "data[].") == 0;
    const char *nearest = NULL;
    /* Further away is no help. */
    size_t best = strlen(name) / 2 + 1 < 4 ? strlen(name) / 2 + 1 : 4;
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const char *candidate = rows[i].shown.name;
        if (in_set && rows[i].shown.per_set) {
            /* as it stands */
        } else if (strncmp(candidate, prefix, prefix_length) == 0) {
            candidate += prefix_length;
        } else {
            continue;
        }
        const size_t edits = distance(name, candidate);
        if (edits < best) {
            best = edits;
            nearest = candidate;
        }
    }
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (strcmp(name, later[i]) == 0)
            return stk_fail(err, STK_ERR_OPTION, "the option %.80s is not in this release: take it out",
                            name);
    if (nearest)
        return stk_fail(err, STK_ERR_OPTION, "unknown option %.80s: did you mean %s?", name, nearest);
    return stk_fail(err, STK_ERR_OPTION, "unknown option %.80s: `stoker options` lists the known ones", name);
}
