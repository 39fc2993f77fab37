/* Threads that share the work of a call. */
#ifndef DYNMO_TEAM_H
#define DYNMO_TEAM_H

#include <stdint.h>

/* The caller and its workers. NULL is the caller alone. */
struct dynmo_team;

/* Starts threads - 1 workers, which sleep between calls. Returns NULL if threads
 * is at most 1 or memory is short. */
struct dynmo_team *dynmo_team_start(int32_t threads);
/* Ends the workers. No call may be in progress. */
void dynmo_team_stop(struct dynmo_team *team);
/* Returns the number of members. Member 0 is the caller. */
int32_t dynmo_team_size(const struct dynmo_team *team);
/* Returns the number of the member whose thread calls. */
int32_t dynmo_team_member(void);

/* Does items [first, last) of a job. */
typedef void dynmo_part(const void *job, int64_t first, int64_t last);

/* Does items [0, n) of a job and returns when all are done. Each free member takes
 * the next range of grain (>= 1) items. The bits of an item may therefore depend
 * neither on its range nor on its member. The caller does all items alone if there
 * are at most grain of them, or if the team has one member. */
void dynmo_parallel(struct dynmo_team *team, int64_t n, int64_t grain, dynmo_part *part, const void *job);

#endif
