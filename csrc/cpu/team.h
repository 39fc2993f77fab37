/* Threads that share the work of a call. */
#ifndef DYNMO_TEAM_H
#define DYNMO_TEAM_H

#include <stdint.h>

/* The caller and its workers. NULL is the caller alone. */
struct dynmo_team;

/* Starts threads - 1 workers, which sleep between calls. Returns NULL if that
 * is none, or if the system gives none. */
struct dynmo_team *dynmo_team_start(int32_t threads);
/* Ends the workers. No call may be in progress. */
void dynmo_team_stop(struct dynmo_team *team);
/* How many the members are; they are numbered from 0, the caller. */
int32_t dynmo_team_size(const struct dynmo_team *team);
/* Returns the number of the member whose thread calls. */
int32_t dynmo_team_member(void);

/* Does items [first, last) of a job. */
typedef void dynmo_part(const void *job, int64_t first, int64_t last);

/* Does items [0, n) of a job and returns when they are done. The team takes
 * them by ranges of grain (>= 1) items, a free member the next one, so an
 * item's bits may not depend on the range it comes in or on the member. Up to
 * grain items stay with the caller, and so does all that a team of one does. */
void dynmo_parallel(struct dynmo_team *team, int64_t n, int64_t grain, dynmo_part *part, const void *job);

#endif
