/* Prompts: what every agent is told, and how its task is put. */
#pragma once

#include "flow/run.h"

/* The system prompt of an agent at that depth; the same text for all agents that may launch others,
 * and for all that may not, so that providers' prompt caches hit. The caller frees it. */
char *rlm_prompt_system(const rlm_flow *flow, int depth);
/* See rlm_flow_prompt_section. */
char *rlm_prompt_section(const rlm_flow *flow, int depth, enum rlm_prompt_section section);

/* The first user message: the task and the list of inputs. */
int rlm_prompt_task(const struct rlm_agent *agent, rlm_str query, struct rlm_buf *out);

/* What is put behind the last message on the last turn. */
extern const char rlm_prompt_final[];
