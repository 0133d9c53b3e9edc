/* The commands: each file cmd_NAME.c has one. */
#pragma once

#include "cli/options.h"

extern const struct command cmd_run, cmd_resume, cmd_view, cmd_demo, cmd_doctor, cmd_config, cmd_version;
