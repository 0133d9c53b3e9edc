#include "runtime/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENV = 4096 };

/* Adds "NAME=VALUE", in the place of an earlier one of that name. */
static int add(struct rlm_environment *e, const char *entry, rlm_error **err)
{
    const char *equals = strchr(entry, '=');
    if (!equals || equals == entry) {
        return rlm_error_set(err, RLM_E_INVAL, "\"%s\" is not of the form NAME=VALUE", entry);
    }
    char *copy = rlm_strdup(entry);
    if (!copy) {
        return rlm_error_nomem(err);
    }
    size_t name_len = (size_t)(equals - entry) + 1;
    for (size_t i = 0; i < e->entries.len; i++) {
        if (strncmp(e->entries.items[i], entry, name_len) == 0) {
            free(e->entries.items[i]);
            e->entries.items[i] = copy;
            return 0;
        }
    }
    char **place = e->entries.len < MAX_ENV ? rlm_vec_push(&e->entries) : NULL;
    if (!place) {
        free(copy);
        return rlm_error_nomem(err);
    }
    *place = copy;
    return 0;
}

int rlm_environment_make(struct rlm_environment *e,
                         const char *mark,
                         const char *const *more,
                         rlm_error **err)
{
    static const char *const kept[] = {"PATH", "HOME", "LANG"};
    int r;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const char *value = getenv(kept[i]);
        rlm_autofree char *entry = NULL;
        if (!value) {
            continue;
        }
        if (asprintf(&entry, "%s=%s", kept[i], value) < 0) {
            entry = NULL;
            return rlm_error_nomem(err);
        }
        if ((r = add(e, entry, err)) < 0) {
            return r;
        }
    }
    if ((r = add(e, "TZ=UTC", err)) < 0 || (r = add(e, "PYTHONHASHSEED=0", err)) < 0) {
        return r;
    }
    if (mark && (r = add(e, mark, err)) < 0) {
        return r;
    }
    for (; more && *more; more++) {
        if ((r = add(e, *more, err)) < 0) {
            return r;
        }
    }
    if (!rlm_vec_push(&e->entries)) {
        return rlm_error_nomem(err);
    }
    return 0;
}

void rlm_environment_deinit(struct rlm_environment *e)
{
    for (size_t i = 0; i < e->entries.len; i++) {
        free(e->entries.items[i]);
    }
    free(e->entries.items);
}
