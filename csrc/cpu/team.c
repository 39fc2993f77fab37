/* Members take a job's ranges one by one from an atomic word. A member that finds
 * no range spins at first, because the next call of a step comes within
 * microseconds. After SPIN it offers its core to others between two looks. After
 * YIELD, longer than a step leaves a member idle, it sleeps: waking a member takes
 * as long as a small call. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "team.h"

/* Nanoseconds of waiting until a member offers its core, and until it sleeps. */
enum { SPIN = 50000, YIELD = 2000000 };

struct worker {
	struct dynmo_team *team;
	pthread_t thread;
	int32_t member;
};

struct dynmo_team {
	/* The number of the job, << 32, and the count of its ranges that nobody has
	 * taken. The number keeps a late member from taking a range of the next job
	 * for a range of this job. */
	_Atomic uint64_t ranges;
	_Atomic int64_t undone; /* ranges of the job that are not done */
	/* The job: written only while nothing is undone. */
	_Atomic(dynmo_part *) part;
	_Atomic(const void *) job;
	_Atomic int64_t n, grain;

	_Atomic int32_t stopping, asleep;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int32_t workers;
	struct worker worker[];
};

static _Thread_local int32_t member; /* 0 of a thread that is no worker */

static int has_ranges(const struct dynmo_team *t) { return (uint32_t)t->ranges > 0 || t->stopping; }
static int is_done(const struct dynmo_team *t) { return t->undone == 0; }

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Returns when ready says so. */
static void await(struct dynmo_team *t, int (*ready)(const struct dynmo_team *))
{
	if (ready(t))
		return;
	for (int64_t begin = now(), waited = 0; waited < YIELD; waited = now() - begin) {
		for (int i = 0; i < 16; i++) {
			if (ready(t))
				return;
			relax();
		}
		if (waited > SPIN)
			sched_yield();
	}
	pthread_mutex_lock(&t->lock);
	t->asleep++;
	while (!ready(t))
		pthread_cond_wait(&t->changed, &t->lock);
	t->asleep--;
	pthread_mutex_unlock(&t->lock);
}

/* Wakes the members that sleep. The caller has stored the awaited value before. A
 * member about to sleep counts itself and then looks at the value again. */
static void wake(struct dynmo_team *t)
{
	if (t->asleep == 0)
		return;
	pthread_mutex_lock(&t->lock);
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
}

/* Does ranges of the job until none is left, the last ranges first: the caches
 * still have their elements from the call before. */
static void take(struct dynmo_team *t)
{
	for (uint64_t ranges = t->ranges; (uint32_t)ranges > 0;) {
		dynmo_part *part = t->part;
		const void *job = t->job;
		int64_t n = t->n, grain = t->grain, first = ((int64_t)(uint32_t)ranges - 1) * grain;
		if (!atomic_compare_exchange_weak(&t->ranges, &ranges, ranges - 1))
			continue;
		part(job, first, n - first < grain ? n : first + grain);
		if (atomic_fetch_sub(&t->undone, 1) == 1)
			wake(t);
		ranges = t->ranges;
	}
}

static void *work(void *arg)
{
	const struct worker *w = arg;
	member = w->member;
	while (!w->team->stopping) {
		take(w->team);
		await(w->team, has_ranges);
	}
	return NULL;
}

struct dynmo_team *dynmo_team_start(int32_t threads)
{
	struct dynmo_team *t = threads > 1 ? calloc(1, sizeof *t + (size_t)(threads - 1) * sizeof *t->worker) : NULL;
	if (t == NULL)
		return NULL;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->changed, NULL);
	sigset_t all, before; /* signals are for the program's own threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (int32_t i = 0; i < threads - 1; i++, t->workers++) {
		struct worker *w = &t->worker[i];
		w->team = t;
		w->member = i + 1;
		if (pthread_create(&w->thread, NULL, work, w) != 0)
			break;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return t;
}

void dynmo_team_stop(struct dynmo_team *t)
{
	if (t == NULL)
		return;
	t->stopping = 1;
	wake(t);
	for (int32_t i = 0; i < t->workers; i++)
		pthread_join(t->worker[i].thread, NULL);
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

int32_t dynmo_team_member(void) { return member; }

int32_t dynmo_team_size(const struct dynmo_team *t) { return t ? 1 + t->workers : 1; }

void dynmo_parallel(struct dynmo_team *t, int64_t n, int64_t grain, dynmo_part *part, const void *job)
{
	if (t == NULL || n <= grain) {
		part(job, 0, n);
		return;
	}
	int64_t ranges = (n + grain - 1) / grain;
	t->part = part;
	t->job = job;
	t->n = n;
	t->grain = grain;
	t->undone = ranges;
	t->ranges = ((t->ranges >> 32) + 1) << 32 | (uint64_t)ranges;
	wake(t);
	take(t);
	await(t, is_done);
}
