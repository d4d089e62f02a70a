/* cost.c - sums over a row's samples; what does not fit 62 bits is cut there, far above any row that fits a device. */
#include "plan/cost.h"

static uint64_t bounded(stk_u128 cost)
{
    const uint64_t most = (uint64_t)1 << 48; /* sums over a step stay far below 2^64 */
    return cost < most ? (uint64_t)cost : most;
}

stk_row_cost stk_row_cost_of(const stk_plan_config *config, const stk_window_sample *sample, uint32_t count)
{
    const stk_model_costs *const c = &config->model->costs;
    stk_u128 text = 0, vision = 0;
    bool has_media = false;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t tokens = sample[i].token_count;
        text += (stk_u128)c->text_linear * tokens + (stk_u128)c->text_square * tokens * tokens;
        vision += (stk_u128)c->vision_linear * sample[i].patch_count +
                  (stk_u128)c->vision_square * sample[i].patch_squares;
        has_media |= sample[i].media_count > 0;
    }
    return (stk_row_cost){.model = bounded(text), .vision = bounded(vision), .has_media = has_media};
}
