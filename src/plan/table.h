/* table.h - how many rows each window of each epoch has: what the packed layout needs to go from a row to its window.
 *
 * Computed in parallel, a window at a time, and kept in a file beside the index, so that the next open reads it back.  The file is keyed by what
 * the rows follow from; one that does not fit or is damaged is computed anew and replaced. */
#ifndef STK_PLAN_TABLE_H
#define STK_PLAN_TABLE_H

#include "plan/order.h"

typedef struct stk_table stk_table;

/* Tables of whole epochs: of `epochs`, or of as many as it takes for `rows` rows (0: by epochs).
 * file: path of the cache; NULL: none.  key: 16 bytes. */
stk_status stk_table_create(stk_table **out, const stk_plan_config *config, const stk_order *order, uint64_t epochs,
                            uint64_t rows, const char *file, const uint8_t key[16], stk_error *err) STK_MUST_USE;
void stk_table_destroy(stk_table *table); /* NULL is fine */

uint64_t stk_table_epochs(const stk_table *table);
/* Rows of all epochs before one; epoch <= epochs. */
uint64_t stk_table_rows_before(const stk_table *table, uint64_t epoch);
/* The window that a row of an epoch lies in, the rows of the epoch before it, and its own.  A file that was made to mislead gives other
 * rows than the window itself has: whoever loads the window compares. */
uint64_t stk_table_window(const stk_table *table, uint64_t epoch, uint64_t row, uint64_t *rows_before, uint64_t *rows);

#endif
