#include "base/buf.h"
#include "base/error.h"
#include "base/utf8.h"
#include "harness.h"
#include "tool/schema.h"

static char message[64 * 1024];

/* The code of making the schema; the message goes to `message`. */
static int make(const char *json)
{
    rlm_autoerr rlm_error *err = NULL;
    rlm_schema *s = NULL;
    int r = rlm_schema_new(rlm_str_of(json), &s, &err);
    CHECK((r < 0) == (s == NULL));
    CHECK((r < 0) == (err != NULL));
    snprintf(message, sizeof message, "%s", rlm_error_message(err));
    rlm_schema_free(s);
    return r;
}

static int check_str(const char *json, rlm_str value_json)
{
    rlm_autoerr rlm_error *err = NULL;
    rlm_schema *s = NULL;
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *value;
    if (rlm_schema_new(rlm_str_of(json), &s, &err) < 0 ||
        rlm_json_parse(arena, value_json, &value, &err) < 0) {
        harness_fail(__FILE__, __LINE__, "%s: %s", json, rlm_error_message(err));
    }
    int r = rlm_schema_check(s, value, &err);
    CHECK((r < 0) == (err != NULL));
    snprintf(message, sizeof message, "%s", rlm_error_message(err));
    rlm_schema_free(s);
    return r;
}

static int check(const char *json, const char *value)
{
    return check_str(json, rlm_str_of(value));
}

#define CHECK_FITS(schema, value) CHECK_INT(check(schema, value), 0)
#define CHECK_FAULT(schema, value, expected)           \
    do {                                               \
        CHECK_INT(check(schema, value), RLM_E_SCHEMA); \
        CHECK_TEXT(message, expected);                 \
    } while (0)

/* ---- messages -------------------------------------------------------------------------------- */

TEST(schema_names_place_expectation_and_finding)
{
    const char *list = "{\"properties\":{\"items\":{\"items\":{\"properties\":{\"price\":"
                       "{\"type\":\"number\"}}}}}}";
    CHECK_FITS(list, "{\"items\":[{\"price\":1}]}");
    CHECK_FAULT(list, "{\"items\":[{},{},{},{\"price\":\"12\"}]}",
                "at /items/3/price: expected a number, found \"12\"");
    CHECK_FAULT("{\"type\":[\"null\",\"string\",\"integer\"]}", "[1]",
                "at the root: expected an integer, a string or null, found [1]");
    CHECK_FAULT("{\"type\":[\"integer\",\"number\"]}", "null",
                "at the root: expected a number, found null");
    CHECK_FAULT("{\"properties\":{\"a/b~\":false}}", "{\"a/b~\":null}",
                "at /a~1b~0: no value is allowed here, found null");
}

TEST(schema_names_the_first_fault)
{
    CHECK_FAULT("{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}}}",
                "{\"x\":0,\"b\":1,\"a\":2}", "at /b: expected null, found 1");
    CHECK_FAULT("{\"items\":{\"type\":\"null\"}}", "[null,1,2]", "at /1: expected null, found 1");
}

TEST(schema_names_properties)
{
    CHECK_FAULT("{\"required\":[\"a\",\"price\"]}", "{\"a\":1}",
                "at the root: the required property \"price\" is missing");
    CHECK_FAULT("{\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":false}",
                "{\"a\":1,\"c\":2}",
                "at the root: the property \"c\" is not allowed; the properties are \"a\", \"b\"");
    CHECK_FAULT("{\"dependentRequired\":{\"a\":[\"b\"]}}", "{\"a\":1}",
                "at the root: the property \"b\" is missing, which is required beside \"a\"");
    CHECK_FAULT("{\"propertyNames\":{\"maxLength\":3}}", "{\"abc\":1,\"abcd\":2}",
                "at the root: a property name: expected at most 3 characters, found 4 in \"abcd\"");
    CHECK_FAULT("true", "[{\"a\":1,\"a\":1}]",
                "at /0: the property \"a\" stands twice in an object");
}

TEST(schema_lists_what_is_allowed)
{
    CHECK_FAULT("{\"enum\":[\"a\",2,null]}", "\"c\"",
                "at the root: expected one of \"a\", 2, null, found \"c\"");
    CHECK_FAULT("{\"const\":{\"a\":1}}", "{}", "at the root: expected {\"a\":1}, found {}");
    char schema[4096] = "{\"enum\":[0", value[4096] = "\"";
    for (int i = 1; i < 300; i++) {
        snprintf(schema + strlen(schema), sizeof schema - strlen(schema), ",%d", i);
        strcat(value, "xyz");
    }
    strcat(schema, "]}");
    strcat(value, "\"");
    CHECK_INT(check(schema, value), RLM_E_SCHEMA);
    const char *found = strstr(message, ", found ");
    CHECK(found != NULL);
    CHECK_INT(found - message - (int)strlen("at the root: expected one of "), 80);
    CHECK_INT(strlen(found + strlen(", found ")), 80);
    CHECK_CONTAINS(message, "...");
}

TEST(schema_tells_the_numbers)
{
    CHECK_FAULT("{\"minimum\":3}", "2", "at the root: expected at least 3, found 2");
    CHECK_FAULT("{\"exclusiveMaximum\":3}", "3", "at the root: expected less than 3, found 3");
    CHECK_FAULT("{\"multipleOf\":0.1}", "0.25",
                "at the root: expected a multiple of 0.1, found 0.25");
    CHECK_FAULT("{\"minLength\":1}", "\"\"", "at the root: expected at least 1 character, found 0");
    CHECK_FAULT("{\"maxItems\":2}", "[1,2,3]", "at the root: expected at most 2 items, found 3");
    CHECK_FAULT(
        "{\"uniqueItems\":true}", "[1,2,1.0]",
        "at the root: expected items that differ, but items 0 and 2 are equal, found [1,2,1.0]");
    CHECK_FAULT("{\"contains\":{\"type\":\"null\"}}", "[1]",
                "at the root: expected at least 1 item that fit \"contains\", found 0");
    CHECK_FAULT("{\"pattern\":\"^a\"}", "\"b\"",
                "at the root: expected text that matches the pattern \"^a\", found \"b\"");
}

TEST(schema_tells_of_the_branch_that_got_deepest)
{
    const char *shapes =
        "{\"oneOf\":["
        "{\"type\":\"string\"},"
        "{\"type\":\"object\",\"properties\":{\"at\":{\"items\":{\"type\":\"integer\"}}}},"
        "{\"type\":\"object\",\"required\":[\"kind\"]}]}";
    CHECK_FAULT(shapes, "{\"at\":[1,\"x\"]}", "at /at/1: expected an integer, found \"x\"");
    CHECK_FAULT("{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "1",
                "at the root: expected a string or null, found 1");
    CHECK_FAULT("{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"integer\",\"minimum\":3}]}", "1",
                "at the root: expected at least 3, found 1");
    CHECK_FAULT(
        "{\"oneOf\":[{\"minimum\":1},{\"type\":\"null\"},{\"maximum\":3}]}", "2",
        "at the root: expected a value that fits exactly one schema of \"oneOf\", but it fits "
        "numbers 0 and 2, found 2");
    CHECK_FAULT("{\"not\":{\"type\":\"integer\"}}", "2",
                "at the root: expected a value that does not fit the schema of \"not\", found 2");
}

TEST(schema_messages_are_text_whatever_is_found)
{
    CHECK_INT(check_str("{\"additionalProperties\":{\"type\":\"null\"}}",
                        RLM_STR("{\"\\u0000\\n\\ud800\":\"\\u0000\\ud800\"}")),
              RLM_E_SCHEMA);
    CHECK_TEXT(message, "at /\\u0000\\u000a\xef\xbf\xbd: expected null, found \"\\u0000\\ud800\"");
    CHECK(rlm_utf8_valid(rlm_str_of(message)));
}

/* ---- what is compared how -------------------------------------------------------------------- */

TEST(schema_compares_numbers_exactly)
{
    CHECK_FITS("{\"const\":1}", "1.0");
    CHECK_FITS("{\"type\":\"integer\"}", "3.0");
    CHECK_INT(check("{\"type\":\"integer\"}", "3.1"), RLM_E_SCHEMA);
    const char *big = "{\"maximum\":100000000000000000000000000000000000001}";
    CHECK_FITS(big, "100000000000000000000000000000000000001");
    CHECK_INT(check(big, "100000000000000000000000000000000000002"), RLM_E_SCHEMA);
    CHECK_FITS("{\"multipleOf\":0.1}", "0.3");
    CHECK_FITS("{\"multipleOf\":7}", "7e1000000");
    CHECK_INT(check("{\"multipleOf\":7}", "1e1000000"), RLM_E_SCHEMA);
    CHECK_FITS("{\"minimum\":1e99999999999999999999}", "1e99999999999999999999");
    CHECK_FITS("{\"enum\":[{\"a\":1,\"b\":[2]}]}", "{\"b\":[2.0],\"a\":10e-1}");
    CHECK_INT(check("{\"const\":1}", "true"), RLM_E_SCHEMA);
}

TEST(schema_counts_code_points)
{
    CHECK_FITS("{\"maxLength\":2}", "\"\\ud834\\udd1e\\udc80\"");
    CHECK_INT(check("{\"maxLength\":1}", "\"\\ud834\\udd1e\\udc80\""), RLM_E_SCHEMA);
    CHECK_FITS("{\"pattern\":\"^\\ufffd$\"}", "\"\\udc80\"");
}

/* ---- what is refused ------------------------------------------------------------------------- */

TEST(schema_refuses_what_it_would_not_check)
{
    CHECK_INT(make("{\"properties\":{\"a\":{\"unevaluatedProperties\":false}}}"), RLM_E_SCHEMA);
    CHECK_CONTAINS(message, "schema at /properties/a/unevaluatedProperties");
    CHECK_CONTAINS(message, "\"unevaluatedProperties\" is not supported");
    CHECK_INT(make("{\"properties\":{\"a\":{\"$id\":\"x\"}}}"), RLM_E_SCHEMA);
    CHECK_INT(
        make("{\"$id\":\"x\",\"$schema\":\"y\",\"title\":\"t\",\"default\":[],\"format\":\"f\"}"),
        0);
    CHECK_INT(make("{\"items\":[{}]}"), RLM_E_SCHEMA);
    CHECK_CONTAINS(message, "prefixItems");
    CHECK_INT(make("{\"type\":\"null\",\"type\":\"string\"}"), RLM_E_SCHEMA);
    CHECK_CONTAINS(message, "\"type\" stands here twice");
    CHECK_INT(make("{"), RLM_E_PARSE);
    CHECK_INT(make("3"), RLM_E_SCHEMA);
}

TEST(schema_refuses_values_of_keywords_that_make_no_sense)
{
    static const char *const wrong[] = {
        "{\"type\":\"text\"}",
        "{\"type\":[]}",
        "{\"minLength\":-1}",
        "{\"minLength\":1.5}",
        "{\"multipleOf\":0}",
        "{\"multipleOf\":-1}",
        "{\"required\":\"a\"}",
        "{\"required\":[1]}",
        "{\"pattern\":\"[a\"}",
        "{\"enum\":[]}",
        "{\"allOf\":[]}",
        "{\"properties\":[]}",
        "{\"patternProperties\":{\"(\":{}}}",
        "{\"uniqueItems\":1}",
        "{\"maximum\":\"1\"}",
        "{\"if\":1}",
        "{\"dependentRequired\":{\"a\":1}}",
        "{\"title\":1}",
        "{\"$defs\":{\"unused\":{\"type\":1}}}",
        "{\"multipleOf\":1234567890123456789}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (make(wrong[i]) != RLM_E_SCHEMA) {
            harness_fail(__FILE__, __LINE__, "%s is accepted", wrong[i]);
        }
        CHECK_CONTAINS(message, "schema at /");
    }
}

TEST(schema_follows_references)
{
    const char *tree = "{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":{\"type\":\"object\","
                       "\"properties\":{\"kids\":{\"items\":{\"$ref\":\"#/$defs/node\"}}}}}}";
    CHECK_FITS(tree, "{\"kids\":[{\"kids\":[]},{}]}");
    CHECK_FAULT(tree, "{\"kids\":[{},{\"kids\":[1]}]}",
                "at /kids/1/kids/0: expected an object, found 1");
    CHECK_INT(make("{\"$ref\":\"#/$defs/none\"}"), RLM_E_SCHEMA);
    CHECK_CONTAINS(message, "schema at /$ref: the reference leads nowhere");
    CHECK_INT(make("{\"$ref\":\"other.json\"}"), RLM_E_SCHEMA);
    CHECK_INT(make("{\"$ref\":\"#anchor\"}"), RLM_E_SCHEMA);
}

TEST(schema_refuses_references_that_loop)
{
    CHECK_INT(make("{\"$ref\":\"#\"}"), RLM_E_SCHEMA);
    CHECK_CONTAINS(message, "refers to itself");
    CHECK_INT(make("{\"anyOf\":[{\"type\":\"null\"},{\"not\":{\"$ref\":\"#\"}}]}"), RLM_E_SCHEMA);
    CHECK_INT(
        make(
            "{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"if\":{\"$ref\":\"#/$defs/a\"}}}}"),
        RLM_E_SCHEMA);
    CHECK_INT(make("{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"items\":{\"$ref\":\"#\"}}"), 0);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

TEST(schema_bounds_its_own_size)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(4 * 1024 * 1024);
    rlm_buf_adds(&b, "{\"allOf\":[{}");
    for (int i = 0; i < 30000; i++) {
        rlm_buf_adds(&b, ",{}");
    }
    rlm_buf_adds(&b, "]}");
    CHECK_INT(make(b.ptr), RLM_E_LIMIT);

    rlm_buf_clear(&b);
    for (int i = 0; i < 110; i++) {
        rlm_buf_adds(&b, "{\"not\":");
    }
    rlm_buf_adds(&b, "{}");
    for (int i = 0; i < 110; i++) {
        rlm_buf_adds(&b, "}");
    }
    CHECK_INT(make(b.ptr), RLM_E_SCHEMA);
    CHECK_CONTAINS(message, "more than 100 schemas inside each other");

    rlm_buf_clear(&b);
    rlm_buf_adds(&b, "{\"title\":\"");
    for (int i = 0; i < 1024 * 1024; i++) {
        rlm_buf_addc(&b, 'x');
    }
    rlm_buf_adds(&b, "\"}");
    CHECK_INT(make(b.ptr), RLM_E_LIMIT);
}

TEST(schema_gives_up_on_patterns_that_backtrack_for_ever)
{
    CHECK_INT(check("{\"items\":{\"pattern\":\"^(a+)+$\"}}",
                    "[\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\"]"),
              RLM_E_SCHEMA);
    CHECK_CONTAINS(message, "at /0: the check against the schema was given up");
}

TEST(schema_gives_up_on_what_multiplies)
{
    /* Each level tries the next one four times: 4 to the power of 40. */
    rlm_auto_buf struct rlm_buf b = RLM_BUF(64 * 1024);
    rlm_buf_adds(&b, "{\"$ref\":\"#/$defs/s0\",\"$defs\":{");
    for (int i = 0; i < 40; i++) {
        rlm_buf_addf(&b, "\"s%d\":{\"oneOf\":[", i);
        for (int j = 0; j < 4; j++) {
            rlm_buf_addf(&b, "%s{\"$ref\":\"#/$defs/s%d\"}", j ? "," : "", i + 1);
        }
        rlm_buf_adds(&b, "]},");
    }
    rlm_buf_adds(&b, "\"s40\":{\"type\":\"null\"}}}");
    CHECK_INT(check(b.ptr, "1"), RLM_E_SCHEMA);
    CHECK_CONTAINS(message, "given up");
}

TEST(schema_bounds_the_depth_of_recursion)
{
    /* Sixty schemas for each of 250 levels. */
    rlm_auto_buf struct rlm_buf b = RLM_BUF(64 * 1024), value = RLM_BUF(4096);
    rlm_buf_adds(&b, "{\"$ref\":\"#/$defs/s0\",\"$defs\":{");
    for (int i = 0; i < 60; i++) {
        rlm_buf_addf(&b, "\"s%d\":{\"$ref\":\"#/$defs/s%d\"},", i, i + 1);
    }
    rlm_buf_adds(&b, "\"s60\":{\"items\":{\"$ref\":\"#\"}}}}");
    for (int i = 0; i < 250; i++) {
        rlm_buf_addc(&value, '[');
    }
    for (int i = 0; i < 250; i++) {
        rlm_buf_addc(&value, ']');
    }
    CHECK_INT(check(b.ptr, value.ptr), RLM_E_SCHEMA);
    CHECK_CONTAINS(message, "nested too deep");
    CHECK_FITS(b.ptr, "[[[[[[[[[[1]]]]]]]]]]");
}

TEST(schema_takes_large_values)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(16 * 1024 * 1024);
    rlm_buf_adds(&b, "[0");
    for (int i = 1; i < 200000; i++) {
        rlm_buf_addf(&b, ",%d", i);
    }
    rlm_buf_adds(&b, "]");
    CHECK_FITS("{\"items\":{\"type\":\"integer\",\"minimum\":0},\"uniqueItems\":true}", b.ptr);
    b.len--;
    rlm_buf_adds(&b, ",77.0]");
    CHECK_INT(check("{\"uniqueItems\":true}", b.ptr), RLM_E_SCHEMA);
    CHECK_CONTAINS(message, "items 77 and 200000 are equal");
}

TEST(schema_keeps_what_it_was_given)
{
    rlm_schema *s;
    char text[] = " {\"type\" : \"null\"} ";
    CHECK_INT(rlm_schema_new(rlm_str_of(text), &s, NULL), 0);
    memset(text, 'x', sizeof text - 1);
    CHECK_STR(rlm_json_text(rlm_json_get(rlm_schema_root(s), "type"), RLM_STR("")), "null");
    rlm_schema_free(s);
    rlm_schema_free(NULL);
}

TEST(json_texts_are_checked_by_a_schema_or_as_one)
{
    static const struct {
        const char *schema, *value;
        int code;
        const char *message;
    } cases[] = {
        {"{\"type\":\"integer\"}", NULL, 0, ""},
        {"{\"type\":\"integer\"}", "3", 0, ""},
        {"{\"type\":\"integer\"}", "\"3\"", RLM_E_SCHEMA, "expected an integer"},
        {"{\"type\":\"integer\"}", "3 4", RLM_E_PARSE, ""},
        {"{\"type\":\"whole\"}", NULL, RLM_E_SCHEMA, "/type"},
        {"{", "3", RLM_E_PARSE, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rlm_autoerr rlm_error *err = NULL;
        rlm_str value = cases[i].value ? rlm_str_of(cases[i].value) : RLM_STR_NONE;
        CHECK_INT(rlm_json_check(rlm_str_of(cases[i].schema), value, &err), cases[i].code);
        CHECK_CONTAINS(rlm_error_message(err), cases[i].message);
    }
}

/* As pydantic writes schemas. */
TEST(annotations_of_generated_schemas_mean_nothing)
{
    CHECK_FITS(
        "{\"type\":\"string\",\"contentMediaType\":\"application/json\",\"contentSchema\":{\"type\":"
        "\"integer\"},\"contentEncoding\":\"base64\",\"discriminator\":{\"propertyName\":\"kind\"}}",
        "\"no JSON\"");
}
