#include "model/address.h"

#include "harness.h"

static struct rlm_address a;

static void parse(const char *url, const struct rlm_dialect *dialect)
{
    rlm_autoerr rlm_error *err = NULL;
    rlm_address_deinit(&a);
    CHECK_INT(rlm_address_parse(url, dialect, &a, &err), 0);
}

TEST(providers_have_their_own_address)
{
    parse(NULL, &rlm_dialect_openai);
    CHECK_TEXT(a.chat_url, "https://api.openai.com/v1/chat/completions");
    CHECK_TEXT(a.models_url, "https://api.openai.com/v1/models");
    CHECK(a.openai && !a.loopback);
    parse("", &rlm_dialect_anthropic);
    CHECK_TEXT(a.chat_url, "https://api.anthropic.com/v1/messages");
    CHECK_TEXT(a.models_url, "https://api.anthropic.com/v1/models");
    CHECK_TEXT(a.server, "https://api.anthropic.com:443");
}

TEST(endings_are_tolerated)
{
    static const char *const openai[] = {"http://h:1/v1", "http://h:1/v1/", "http://h:1/v1//",
                                         "http://h:1/v1/chat/completions",
                                         "http://h:1/v1/chat/completions/"};
    for (size_t i = 0; i < 5; i++) {
        parse(openai[i], &rlm_dialect_openai);
        CHECK_TEXT(a.chat_url, "http://h:1/v1/chat/completions");
        CHECK_TEXT(a.shown, "http://h:1/v1");
    }
    static const char *const anthropic[] = {"http://h:1", "http://h:1/", "http://h:1/v1",
                                            "http://h:1/v1/", "http://h:1/v1/messages"};
    for (size_t i = 0; i < 5; i++) {
        parse(anthropic[i], &rlm_dialect_anthropic);
        CHECK_TEXT(a.chat_url, "http://h:1/v1/messages");
        CHECK_TEXT(a.shown, "http://h:1");
    }
    parse("https://h/deploy/chat/completions?api-version=3#x", &rlm_dialect_openai);
    CHECK_TEXT(a.chat_url, "https://h/deploy/chat/completions?api-version=3");
    CHECK_TEXT(a.models_url, "https://h/deploy/models?api-version=3");
    CHECK_TEXT(a.shown, "https://h/deploy");
}

TEST(credentials_are_not_shown)
{
    parse("HTTP://me:s3cr@t@Host.Example:8080/v1?key=k", &rlm_dialect_openai);
    CHECK_TEXT(a.shown, "http://Host.Example:8080/v1");
    CHECK_TEXT(a.server, "http://host.example:8080");
    CHECK_TEXT(a.password, "s3cr@t");
    CHECK(strstr(a.chat_url, "me:s3cr@t@"));
    parse("http://token@h/v1", &rlm_dialect_openai);
    CHECK_TEXT(a.password, "token");
    CHECK_TEXT(a.server, "http://h:80");
}

TEST(this_machine_is_known)
{
    static const char *const here[] = {"http://localhost/v1",   "http://127.0.0.1:1/v1",
                                       "http://127.9.9.9/v1",   "http://[::1]:8080/v1",
                                       "http://LOCALHOST:3/v1", "http://x.localhost/v1"};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++) {
        parse(here[i], &rlm_dialect_openai);
        CHECK(a.loopback);
    }
    parse("http://[::1]:8080/v1", &rlm_dialect_openai);
    CHECK_TEXT(a.server, "http://::1:8080");
    parse("http://example.org/v1", &rlm_dialect_openai);
    CHECK(!a.loopback);
}

TEST(nonsense_is_refused_without_showing_it)
{
    static const char *const bad[] = {"example.org/v1",  "ftp://h/v1",    "http://",
                                      "http:///v1",      "http://h /v1",  "http://h\n/v1",
                                      "http://u:pw@/v1", "http://:80/v1", "u:pw@h"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rlm_autoerr rlm_error *err = NULL;
        CHECK_INT(rlm_address_parse(bad[i], &rlm_dialect_openai, &a, &err), RLM_E_INVAL);
        CHECK_CONTAINS(rlm_error_message(err), "base URL");
        CHECK(!strstr(rlm_error_message(err), "pw"));
    }
}
