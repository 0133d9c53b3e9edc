/* Stands for a model in a replay, where no model is asked. */
#include "base/alloc.h"
#include "model/model.h"

static int recorded_start(rlm_model *m,
                          const struct rlm_chat_request *request,
                          rlm_chat *chat,
                          rlm_error **err)
{
    (void)request, (void)chat;
    return rlm_error_set(err, RLM_E_UNSUPPORTED,
                         "model %s stands for a recorded one: it can be named, not asked", m->name);
}

static void nothing(rlm_chat *chat)
{
    (void)chat;
}

static void recorded_free(rlm_model *m)
{
    rlm_model_deinit(m);
    free(m);
}

static const struct rlm_model_ops ops = {
    .chat_size = sizeof(rlm_chat),
    .start = recorded_start,
    .cut = nothing,
    .stop = nothing,
    .free = recorded_free,
};

int rlm_model_new_recorded(rlm_loop *loop, const char *name, rlm_model **ret_model, rlm_error **err)
{
    const struct rlm_price free_of_charge = {0, 0, 0, 0};
    rlm_model *m;
    if (!RLM_NEW(m)) {
        return rlm_error_nomem(err);
    }
    int r = rlm_model_init(m, loop, &ops, name, "recorded", "recorded", &free_of_charge, err);
    if (r < 0) {
        free(m);
        return r;
    }
    *ret_model = m;
    return 0;
}
