/* turn_loss.c - which turns a record itself wants trained, or not: by a key of each turn, or by one list. */
#include "manifest/record_reader.h"

/* false, true, 0 and 1; null says nothing.  A turn that is told twice is told the same. */
static stk_status set_train(stk_record_reader *reader, stk_turn *turn, const json_t *value, const char *name)
{
    if (!value || json_is_null(value)) return STK_OK;
    const double number = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
    if ((!json_is_boolean(value) && !json_is_number(value)) || (number != 0 && number != 1)) {
        char shown[32] = "";
        if (json_is_number(value)) snprintf(shown, sizeof shown, " %g", number);
        return stk_record_reader_fail(reader, STK_REASON_TURN_LOSS,
                                      "a `%s`%s that is not true, false, 0 or 1: a turn is trained as a whole or not at "
                                      "all",
                                      name, shown);
    }
    const stk_train train = number == 1 ? STK_TRAIN_YES : STK_TRAIN_NO;
    if (turn->train != STK_TRAIN_BY_RULE && turn->train != train)
        return stk_record_reader_fail(reader, STK_REASON_TURN_LOSS,
                                      "`%s` says the opposite of what else the record says of this turn's loss", name);
    turn->train = train;
    return STK_OK;
}

stk_status stk_record_reader_loss(stk_record_reader *reader, stk_turn *turn, const json_t *json, stk_dialect dialect)
{
    /* Where a framework gives a key to answers only, it has no say in other turns, where loaders fill it in. */
    const struct {
        const char *name;
        bool answers_only;
    } keys[] = {{"train", false}, {"loss", dialect == STK_DIALECT_MS_SWIFT}, {"loss_scale", true}, {"weight", true}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        stk_turn nobody = {0};
        const bool counts = !keys[i].answers_only || turn->role == STK_ROLE_ASSISTANT;
        STK_TRY(set_train(reader, counts ? turn : &nobody, stk_json_get(json, keys[i].name), keys[i].name));
    }
    if (json_array_size(stk_json_get(json, "train_detail")))
        return stk_record_reader_fail(reader, STK_REASON_TURN_LOSS,
                                      "`train_detail` trains pieces of a turn, which is not supported: make turns of "
                                      "them, or take it out");
    return STK_OK;
}

/* One entry for each turn, or one for each turn of the assistant. */
static stk_status read_list(stk_record_reader *reader, stk_message *message, size_t count, const json_t *list,
                            const char *name)
{
    size_t answers = 0;
    for (size_t i = 0; i < count; i++) answers += message[i].turn.role == STK_ROLE_ASSISTANT;
    const size_t entries = json_array_size(list);
    if (entries != count && entries != answers)
        return stk_record_reader_fail(reader, STK_REASON_TURN_LOSS,
                                      "%zu entries in `%s` for %zu turns, %zu of them the assistant's: give it one for "
                                      "each turn, or one for each of the assistant's",
                                      entries, name, count, answers);
    const bool ms_swift = reader->rules->dialect == STK_DIALECT_MS_SWIFT;
    for (size_t i = 0, at = 0; i < count; i++) {
        const bool is_answer = message[i].turn.role == STK_ROLE_ASSISTANT;
        if (entries != count && !is_answer) continue;
        reader->turn_number = i + 1;
        stk_turn nobody = {0};
        STK_TRY(set_train(reader, is_answer || !ms_swift ? &message[i].turn : &nobody, json_array_get(list, at++), name));
    }
    reader->turn_number = 0;
    return STK_OK;
}

stk_status stk_record_reader_loss_list(stk_record_reader *reader, stk_message *message, size_t count)
{
    static const char *const names[] = {"loss", "weights"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *const list = stk_json_get(reader->record, names[i]);
        if (json_is_array(list)) STK_TRY(read_list(reader, message, count, list, names[i]));
    }
    for (size_t i = 0; i < count && i < reader->prompt_count; i++)
        if (message[i].turn.train == STK_TRAIN_BY_RULE && message[i].turn.role == STK_ROLE_ASSISTANT)
            message[i].turn.train = STK_TRAIN_NO;
    return STK_OK;
}
