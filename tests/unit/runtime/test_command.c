/* Sessions behind commands. */
#include "real_worker.h"

#include <sys/stat.h>

static void make_command(const char *const *argv, const char *directory)
{
    struct rlm_command_options o = RLM_COMMAND_OPTIONS_INIT;
    o.argv = argv;
    o.python = "/usr/bin/python3";
    o.working_directory = directory;
    rlm_autoerr rlm_error *err = NULL;
    rlm_runtime_new_command(t.loop, &o, &t.runtime, &err);
    CHECK_TEXT(rlm_error_message(err), "");
}

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})

static void begin_command(const char *const *argv, const char *directory)
{
    begin();
    make_command(argv, directory);
    open_session();
}

static void check_cells(void)
{
    CHECK_TEXT(run("x = 41\nprint(x)"), "finished ok: 41\n|");
    CHECK_TEXT(
        run("import os, sys\nos.system('echo from a child')\nprint(x, sys.stdin.read() == '',"
            " os.environ['PYTHONHASHSEED'], os.environ['TZ'])"),
        "finished ok: from a child\n41 True 0 UTC\n|");
    start("print(await llm_query('p' * 100_000))");
    CHECK_CONTAINS(wait_for("suspended"), " 1 llm_query ");
    give(1, "\"good\"");
    CHECK_CONTAINS(wait_for("finished"), "finished ok: good\n|");
}

TEST(words_go_behind_the_last_argument)
{
    begin_command(ARGV("env", "FROM=words"), NULL);
    check_cells();
    CHECK_TEXT(run("print(os.environ['FROM'])"), "finished ok: words\n|");
    end();
}

TEST(a_line_of_shell_goes_in_its_place)
{
    begin_command(ARGV("/bin/sh", "-c", "FROM=shell; export FROM; {worker}; echo never"), NULL);
    check_cells();
    CHECK_TEXT(run("print(os.environ['FROM'])"), "finished ok: shell\n|");
    end();
}

TEST(a_stream_may_pass_through_others)
{
    begin_command(ARGV("/bin/sh", "-c", "cat | (unset X; {worker}) | cat"), NULL);
    check_cells();
    end();
}

static void check_directory(const char *const *argv)
{
    char odd[200];
    snprintf(odd, sizeof odd, "%s/it's \"odd\" $HOME", harness_directory());
    CHECK_INT(mkdir(odd, 0700), 0);
    begin_command(argv, odd);
    CHECK_CONTAINS(run("import os\nprint(os.getcwd())"), "/it's \"odd\" $HOME\n|");
    end();
}

TEST(the_directory_is_the_far_sides)
{
    check_directory(ARGV("env"));
}

TEST(the_directory_is_quoted_in_the_line)
{
    check_directory(ARGV("/bin/sh", "-c", "{worker}"));
}

/* What is told of a command whose session does not open. */
static const char *refused(const char *const *argv)
{
    begin();
    make_command(argv, NULL);
    rlm_autoerr rlm_error *err = NULL;
    CHECK_INT(try_open(&err), 0);
    return wait_for("died");
}

TEST(a_banner_is_named)
{
    CHECK_CONTAINS(refused(ARGV("/bin/sh", "-c", "echo Welcome to the machine; {worker}")),
                   "it is no worker that speaks first: \"Welcome to the machine.\"");
    end();
}

TEST(what_the_command_says_of_its_end_is_told)
{
    CHECK_CONTAINS(
        refused(ARGV("/bin/sh", "-c", "echo no route to host >&2; exit 7")),
        "the worker's command ended with exit status 7 before it was ready: no route to host");
    end();
}

TEST(a_far_side_without_python_is_told)
{
    CHECK_CONTAINS(refused(ARGV("/bin/sh", "-c", "PATH=/nowhere; /usr/bin/env no-such-python")),
                   "no-such-python");
    end();
}

TEST(a_line_that_drops_is_told)
{
    begin_command(ARGV("/bin/sh", "-c", "{worker}"), NULL);
    start("import os, signal\nprint('said', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)");
    CHECK_CONTAINS(wait_for("died"), "the worker's command was killed by signal 9 (SIGKILL)");
    end();
}

TEST(a_cell_that_does_not_end_is_interrupted)
{
    t.exec_timeout_ms = 200;
    begin_command(ARGV("/bin/sh", "-c", "{worker}"), NULL);
    start("x = 1\nwhile True: pass");
    CHECK_CONTAINS(wait_for("finished"), "finished CellInterrupted (exec_timeout)");
    CHECK_TEXT(run("print(x)"), "finished ok: 1\n|");
    end();
}

TEST(a_command_that_is_not_there_is_named)
{
    begin();
    make_command(ARGV("no-such-command"), NULL);
    rlm_autoerr rlm_error *err = NULL;
    CHECK_INT(try_open(&err), RLM_E_NOT_FOUND);
    CHECK_CONTAINS(rlm_error_message(err), "there is no command \"no-such-command\" in PATH");
    end();
}

TEST(no_command_is_refused)
{
    begin();
    struct rlm_command_options o = RLM_COMMAND_OPTIONS_INIT;
    rlm_autoerr rlm_error *err = NULL;
    CHECK_INT(rlm_runtime_new_command(t.loop, &o, &t.runtime, &err), RLM_E_INVAL);
    CHECK_CONTAINS(rlm_error_message(err), "needs a command");
    end();
}
