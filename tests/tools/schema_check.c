/* Checks values against schemas, for comparison with another validator.
 *
 * Standard input has pairs of lines: a schema, then a value. For each pair one line is printed: "ok",
 * "schema: MESSAGE" when the schema is refused, or "value: MESSAGE". */
#include "base/alloc.h"
#include "tool/schema.h"

#include <stdio.h>

static rlm_str read_line(char **line, size_t *cap)
{
    ssize_t len = getline(line, cap, stdin);
    if (len < 0) {
        return RLM_STR_NONE;
    }
    return (rlm_str){*line, (size_t)len};
}

static int check_pair(rlm_str schema_json, rlm_str value_json)
{
    rlm_autoerr rlm_error *err = NULL;
    rlm_schema *schema = NULL;
    if (rlm_schema_new(schema_json, &schema, &err) < 0) {
        printf("schema: %s\n", rlm_error_message(err));
        return 0;
    }
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *value;
    int r = -1;
    if (!arena || rlm_json_parse(arena, value_json, &value, &err) < 0) {
        fprintf(stderr, "%s\n", rlm_error_message(err));
    } else {
        r = 0;
        if (rlm_schema_check(schema, value, &err) < 0) {
            printf("value: %s\n", rlm_error_message(err));
        } else {
            puts("ok");
        }
    }
    rlm_schema_free(schema);
    return r;
}

int main(void)
{
    rlm_autofree char *schema_line = NULL;
    rlm_autofree char *value_line = NULL;
    size_t schema_cap = 0, value_cap = 0;
    for (;;) {
        rlm_str schema = read_line(&schema_line, &schema_cap);
        if (!schema.ptr) {
            return 0;
        }
        rlm_str value = read_line(&value_line, &value_cap);
        if (!value.ptr || check_pair(schema, value) < 0) {
            return 1;
        }
    }
}
