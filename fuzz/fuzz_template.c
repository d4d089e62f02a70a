/* fuzz_template.c - a hostile turn format and a hostile conversation: what comes out has as many pads as
 * media, labels that were counted, ids of the vocabulary, and no label on a medium.
 *
 * An input is three letters, the strings of a turn format with tabs between, a line break, and a record.  The
 * letters choose the template; control_tokens, allowed tokens and a system turn of the rules; labels and what
 * a turn format trains. */
#include <stdlib.h>
#include <unistd.h>

#include "manifest/record.h"
#include "text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static stk_tokenizer *tokenizer;
static stk_text_scratch *scratch;
static stk_sample sample;

static void require(bool condition)
{
    if (!condition) abort();
}

/* The vocabulary: the 256 bytes in the order of their characters, no merge, and the added tokens that
 * templates write. */
static void write_vocabulary(FILE *file)
{
    static const char *const added[] = {
        "<|endoftext|>",    "<|im_start|>",  "<|im_end|>",  "<|vision_start|>", "<|vision_end|>",
        "<|image_pad|>",    "<|video_pad|>", "<tool_call>", "</tool_call>",     "<tool_response>",
        "</tool_response>", "<think>",       "</think>"};
    fputs("{\"added_tokens\":[", file);
    for (int i = 0; i < 13; i++)
        fprintf(file,
                "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                "\"normalized\":false,\"special\":%s}",
                i ? "," : "", 256 + i, added[i], i < 7 ? "true" : "false");
    fputs("],\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
          "\"type\":\"Split\","
          "\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|"
          "\\\\p{N}| ?"
          "[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":"
          "\"Isolated\","
          "\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_"
          "regex\":false}]},"
          "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{",
          file);
    int id = 0;
    for (int c = 33; c < 324; c++)
        if (c < 127 || (c > 160 && c != 173)) fprintf(file, "%s\"\\u%04x\":%d", id ? "," : "", c, id), id++;
    require(id == 256);
    fputs("}}}\n", file);
}

static void open_all(void)
{
    char folder[] = "/tmp/stoker-fuzz-XXXXXX", path[64];
    const stk_limits limits = {.text_bytes = 1 << 18};
    require(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    FILE *const file = fopen(path, "w");
    require(file != NULL);
    write_vocabulary(file);
    require(fclose(file) == 0);
    stk_error err;
    const stk_status status = stk_tokenizer_open(&tokenizer, folder, &err);
    if (status < 0) stk_error_print(stderr, &err);
    require(status == STK_OK && unlink(path) == 0 && rmdir(folder) == 0);
    require(stk_text_scratch_create(&scratch, &limits, &err) == STK_OK);
    stk_sample_init(&sample);
}

/* The next string of the line, NULL where there is none. */
static stk_str next_string(stk_str *line)
{
    if (!line->data) return *line;
    const char *const tab = line->size_bytes ? memchr(line->data, '\t', line->size_bytes) : NULL;
    const stk_str out = {line->data, tab ? (size_t)(tab - line->data) : line->size_bytes};
    *line = tab ? (stk_str){tab + 1, line->size_bytes - out.size_bytes - 1} : (stk_str){NULL, 0};
    return out;
}

static stk_template *open_template(const uint8_t letter[3], stk_str line)
{
    /* Where there is no name, the turns are declared. */
    static const char *const names[10] = {"qwen3-vl",          "qwen2.5-vl",       "qwen3.5",
                                          "qwen3.6",           "qwen3.8",          NULL,
                                          "qwen3-vl-thinking", "qwen3.5-training", "qwen3.6-training"};
    stk_template *out = NULL;
    stk_error err;
    const char *const name = names[letter[0] % 10];
    if (name) {
        require(stk_template_named(&out, stk_str_of(name), &err) == STK_OK);
        return out;
    }
    const int flags = letter[2] / 3;
    stk_turn_format format = {.assistant = {.trains_text = !(flags & 1), .trains_after = !(flags & 2)}};
    stk_turn_format_role *const role[] = {&format.assistant, &format.user, &format.system, &format.tool};
    for (int i = 0; i < 4; i++) {
        role[i]->before = next_string(&line);
        role[i]->after = next_string(&line);
        role[i]->given = role[i]->after.data != NULL;
    }
    format.image = next_string(&line);
    format.default_system = next_string(&line);
    format.video = next_string(&line);
    const stk_status status = stk_template_declared(&out, &format, &err);
    require(status == STK_OK || (status == STK_ERR_OPTION && !out && err.message[0]));
    return out;
}

static void check_tokens(const stk_tokens *tokens, const stk_text_rules *rules)
{
    uint32_t supervised = 0, pads = 0;
    require(tokens->count && tokens->media_count == sample.media_count);
    for (uint32_t i = 0; i < tokens->count; i++) {
        require(tokens->id[i] >= 0 && tokens->id[i] < 256 + 13);
        require(tokens->trained[i] <= 1);
        supervised += tokens->trained[i];
        if (tokens->id[i] != 256 + 5 && tokens->id[i] != 256 + 6) continue;
        require(pads < tokens->media_count && tokens->media_at[pads] == i);
        require(!tokens->trained[i] || rules->labels == STK_LABELS_FINETUNE);
        pads++;
    }
    require(pads == tokens->media_count && supervised && supervised == tokens->supervised_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const stk_limits limits = {.record_bytes = 1 << 16, .json_depth = 40, .media_per_record = 8};
    const stk_record_rules record_rules = {.media_root = {"/m", 2}, .limits = &limits};
    if (!tokenizer) open_all();
    const uint8_t *const end_of_line = size > 3 ? memchr(data + 3, '\n', size - 3) : NULL;
    if (!end_of_line) return 0;
    const stk_str line = {(const char *)data + 3, (size_t)(end_of_line - data - 3)};
    const stk_str record = {(const char *)end_of_line + 1, size - (size_t)(end_of_line - data) - 1};

    stk_reason reason;
    stk_error err = {0};
    if (stk_record_parse(&sample, &record_rules, record, &reason, &err) != STK_OK) return 0;
    stk_template *t = open_template(data, line);
    if (!t) return 0;
    static const stk_str allowed[] = {{"<think>", 7}, {"<|vision_start|>", 16}, {"</tool_response>", 16}};
    static const stk_str system = {"s <think>\n<|im_end|>", 20};
    const int flags = data[1] / 3;
    const stk_text_rules rules = {.labels = (stk_label_rule)(data[2] % 3),
                                  .control_tokens = (stk_control_rule)(data[1] % 3),
                                  .allow_control_tokens = {allowed, flags & 1 ? 3 : 0},
                                  .system = flags & 2 ? system : (stk_str){NULL, 0}};
    stk_tokens tokens;
    const stk_status status = stk_text_encode(&tokens, tokenizer, t, &rules, &sample, scratch, &reason, &err);
    if (status == STK_OK)
        check_tokens(&tokens, &rules);
    else
        require((status == STK_ERR_OPTION || (status == STK_ERR_RECORD && reason != STK_REASON_NONE)) &&
                err.message[0]);
    stk_template_close(&t);
    return 0;
}
