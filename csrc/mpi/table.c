#include "table.h"

#include <stdlib.h>

static struct transfer **transfers; /* all ever made; reused, never freed */
static int32_t *idle;               /* indices free for use; room for all */
static int32_t made, idles, room;

static MPI_Comm *groups;
static int32_t group_count;

int32_t transfer_new(void) {
	if (idles > 0)
		return idle[--idles];
	if (made == room) {
		int32_t more = room ? 2 * room : 64;
		void *a = realloc(transfers, more * sizeof *transfers);
		if (a == NULL)
			return -1;
		transfers = a;
		void *b = realloc(idle, more * sizeof *idle);
		if (b == NULL)
			return -1;
		idle = b;
		room = more;
	}
	struct transfer *t = malloc(sizeof *t);
	if (t == NULL)
		return -1;
	transfers[made] = t;
	return made++;
}

struct transfer *transfer_at(int32_t index) {
	return index >= 0 && index < made ? transfers[index] : NULL;
}

void transfer_drop(int32_t index) {
	idle[idles++] = index;
}

int32_t group_new(MPI_Comm comm) {
	for (int32_t i = 0; i < group_count; i++) {
		if (groups[i] == MPI_COMM_NULL) {
			groups[i] = comm;
			return i;
		}
	}
	void *more = realloc(groups, (group_count + 1) * sizeof *groups);
	if (more == NULL)
		return -1;
	groups = more;
	groups[group_count] = comm;
	return group_count++;
}

MPI_Comm group_at(int32_t index) {
	return index >= 0 && index < group_count ? groups[index] : MPI_COMM_NULL;
}

void group_drop(int32_t index) {
	groups[index] = MPI_COMM_NULL;
}
