/* A reader of the part of TOML that settings need: `key = value` with strings (basic and literal, on one
 * line), integers, floats, booleans and arrays of strings, [tables], comments. Everything else is an
 * error that names the file and the line. */
#pragma once

#include "rlmflow.h"

#include <stdbool.h>

/* A value as the text that the flag of that name would get; of an array one call an element. Returns
 * NULL, or what is wrong (allocated). */
typedef char *(*toml_value)(
    void *arg, const char *table, const char *key, const char *value, int line);

/* Reads a text that `path` names in messages. False: *ret_problem (allocated) says what is wrong. */
bool toml_parse(
    const char *path, struct rlm_str text, toml_value take, void *arg, char **ret_problem);
/* Reads a file. 1: it was read, 0: there is none, -1: *ret_problem (allocated) says what is wrong. */
int toml_read(const char *path, toml_value take, void *arg, char **ret_problem);
