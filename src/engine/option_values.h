/* option_values.h - a YAML node to the value of one option, by its row of the table.
 *
 * Not here: documents, keys, and where a value goes (options.c). */
#ifndef STK_ENGINE_OPTION_VALUES_H
#define STK_ENGINE_OPTION_VALUES_H

#include <yaml.h>

#include "engine/option_table.h"

/* What is being read. */
typedef struct stk_yaml_reader {
    stk_options *options;
    yaml_document_t *document;
    const char *file; /* NULL: a value of its own */
    bool states;      /* what `eval` states itself */
    stk_error *err;
} stk_yaml_reader;

/* Fail with STK_ERR_OPTION, naming the file and the node's line (node may be NULL). */
stk_status stk_yaml_fail(const stk_yaml_reader *r, const yaml_node_t *node, const char *format, ...)
    STK_PRINTF(3, 4);
/* Add file and line to a failure that has neither; returns status. */
stk_status stk_yaml_forward(const stk_yaml_reader *r, const yaml_node_t *node, stk_status status);
/* The text of a scalar node. */
const char *stk_yaml_text(const yaml_node_t *node);
/* The node is a mapping of texts, and no key stands twice; what: its name in messages. */
stk_status stk_yaml_check_keys(const stk_yaml_reader *r, const yaml_node_t *map,
                               const char *what) STK_MUST_USE;

/* Put the value of a node at base + at_bytes, in place of what stands there.  On failure that stays. */
stk_status stk_option_value_set(const stk_yaml_reader *r, void *base, size_t at_bytes,
                                const stk_option_row *row, const yaml_node_t *node) STK_MUST_USE;

/* Free what a value holds, and clear it. */
void stk_string_list_free(stk_string_list *list);
void stk_schedule_free(stk_schedule *schedule);
void stk_string_map_free(stk_string_map *map);
void stk_template_options_free(stk_template_options *t);

#endif
