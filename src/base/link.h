/* A list whose members carry their place in it, and leave it at any time.
 *
 * For what a program was given and may never give back: the owner keeps the list, and frees at its own
 * end whoever is still in it.
 *
 *     struct answer { struct rlm_link link; ... };                  the first member
 *     rlm_link_add(&owner->answers, &answer->link);
 *     rlm_link_remove(&answer->link);                               in no list: nothing happens
 *     while (owner->answers) answer_free((struct answer *)owner->answers);      which removes it
 */
#pragma once

#include <stddef.h>

struct rlm_link {
    struct rlm_link *next, **place; /* `place` points here; NULL: in no list */
};

static inline void rlm_link_add(struct rlm_link **list, struct rlm_link *link)
{
    link->next = *list;
    link->place = list;
    if (link->next) {
        link->next->place = &link->next;
    }
    *list = link;
}

static inline void rlm_link_remove(struct rlm_link *link)
{
    if (link->place) {
        *link->place = link->next;
        if (link->next) {
            link->next->place = link->place;
        }
        link->place = NULL;
    }
}
