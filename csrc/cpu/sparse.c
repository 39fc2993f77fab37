/* Products y = x·M with a matrix in compressed rows. M leads from input to
 * output channels: its rows are the outputs forward and the inputs backward.
 *
 * Tokens go by tiles, packed channel by channel. For any pattern, a kept entry
 * is then one multiplication and addition over the tokens of a tile. The matrix
 * goes by chunks of outputs and, within a chunk, by blocks of inputs: the sums
 * of a chunk stay in L2, a tile of a block in L1. The entries of a block are
 * copied once for all tiles of a panel, output by output.
 *
 * Sums over channels take inputs in order, and sums over tokens take tiles in
 * order. Chunks, blocks and panels do not change these orders. Chunks share
 * nothing, so threads take chunks in any order. */
#include "kernels.h"

enum {
	PANEL = 256,         /* tokens of a panel, whole tiles: a block is copied once a panel */
	CHUNK = 512,         /* most outputs of a chunk: their sums for a panel take 512 KB */
	CHUNKS = 3,          /* for each of several threads, so that they end together */
	BY_ROW = 24,         /* mean entries of an output in a block from which visiting the output pays */
	BY_COLUMN = 16,      /* the same for a column: sorting by column writes all over a block's entries */
	TILE_BYTES = 24576,  /* of a tile of a block, to leave room in L1; larger where BY_ROW or BY_COLUMN want more inputs */
	BLOCK_INPUTS = 1024, /* most inputs of a block: a tile of them takes 256 KB */
	SPARE = 3,           /* entries behind a group, because sample does four at a time */
	AHEAD = 8,           /* rows from prefetch to use: the copies of some hundred entries */
	ROWS = 64,           /* that a thread cuts at a time */
	CHANNELS = 128,      /* that a thread packs at a time */
};

/* How a matrix is cut. */
struct cut {
	int64_t chunk, chunks, block; /* outputs of a chunk; chunks; inputs of a block */
	int64_t slot;                 /* entries from one group to the next: an odd number of cache lines */
	int64_t room;                 /* floats that a thread needs */
};

static struct cut cut(const dynmo_cpu *k, int64_t entries, int64_t inputs, int64_t outputs, int64_t nnz)
{
	int32_t threads = dynmo_team_size(k->team);
	int64_t parts = threads > 1 ? CHUNKS * threads : 1 + (outputs - 1) / CHUNK;
	int64_t fits = TILE_BYTES / (k->tile * (int64_t)sizeof(float)), pays = entries * inputs * outputs / (nnz + 1);
	struct cut c = {
		.chunk = dynmo_min(CHUNK, dynmo_lines(outputs / parts + 1)),
		.block = dynmo_min(inputs, dynmo_min(BLOCK_INPUTS, pays > fits ? pays : fits)),
	};
	c.chunks = (outputs + c.chunk - 1) / c.chunk;
	c.slot = dynmo_lines(c.block + SPARE) | 16;
	c.room = c.chunk * (PANEL + 2 + 2 * c.slot);
	return c;
}

static int64_t work(const dynmo_cpu *k, int64_t entries, int64_t inputs, int64_t outputs, int64_t nnz)
{
	struct cut c = cut(k, entries, inputs, outputs, nnz);
	return dynmo_lines(1) + inputs * PANEL + dynmo_lines((c.chunks + 1) * inputs) + dynmo_team_size(k->team) * c.room;
}

int64_t dynmo_cpu_spmm_work(const dynmo_cpu *k, int64_t rows, int64_t cols, int64_t nnz)
{
	int64_t forward = work(k, BY_ROW, cols, rows, nnz), backward = work(k, BY_COLUMN, rows, cols, nnz);
	return forward > backward ? forward : backward;
}

/* A call, at one panel of n tokens. */
struct product {
	const dynmo_cpu *k;
	struct cut cut;
	const int32_t *row_ptr, *col_idx;
	const float *values, *bias;
	const float *x, *dy; /* (n, inputs), (n, outputs) */
	float *y, *dvalues;  /* (n, outputs), (nnz) */
	int64_t inputs, outputs, n, nnz;
	int by_column;       /* outputs are columns, not rows */
	float *tiles;        /* of x */
	int32_t *starts;     /* by column: where chunk c starts in row r is starts[c·inputs + r] */
	float *rooms;        /* of the threads */
};

static struct product begin(const dynmo_cpu *k, float *work, int64_t entries, const int32_t *row_ptr,
	const int32_t *col_idx, int64_t inputs, int64_t outputs, int64_t nnz)
{
	struct product p = {.k = k, .cut = cut(k, entries, inputs, outputs, nnz), .row_ptr = row_ptr, .col_idx = col_idx,
		.inputs = inputs, .outputs = outputs, .nnz = nnz};
	p.tiles = dynmo_align(work);
	p.starts = (int32_t *)(p.tiles + inputs * PANEL);
	p.rooms = (float *)(p.starts + dynmo_lines((p.cut.chunks + 1) * inputs));
	return p;
}

/* A thread's room for a chunk. The group of output o has the entries from
 * o·slot to ends[o]; SPARE more of input 0 follow those grouped by row. */
struct room {
	float *y;      /* tiles of the chunk's y or dy */
	int32_t *next; /* the next entry of each row */
	int32_t *ends, *inputs;
	float *values;
};

static struct room room(const struct product *p)
{
	const struct cut *c = &p->cut;
	struct room r = {.y = p->rooms + dynmo_team_member() * c->room};
	r.next = (int32_t *)(r.y + c->chunk * PANEL);
	r.ends = r.next + c->chunk;
	r.inputs = r.ends + c->chunk;
	r.values = (float *)(r.inputs + c->chunk * c->slot);
	return r;
}

/* Prefetches elements of 4 bytes. */
static void fetch(const void *p, int64_t elements)
{
	for (int64_t i = 0; i < elements; i += 16)
		__builtin_prefetch((const float *)p + i);
}

/* Returns the first of entries [e, end) of a row whose column is at least bound. */
static inline int32_t find(const int32_t *col_idx, int32_t e, int32_t end, int64_t bound)
{
	while (e + 8 <= end && col_idx[e + 7] < bound)
		e += 8;
	while (e < end && col_idx[e] < bound)
		e++;
	return e;
}

/* Groups the entries, with some values, of rows [o, o + outputs) from next to
 * column last. */
static void group_rows(const struct product *p, const struct room *r, const float *values, int64_t o, int64_t outputs,
	int64_t last)
{
	const int32_t *ends = p->row_ptr + o + 1, *col_idx = p->col_idx;
	int64_t expected = p->nnz / p->outputs * p->cut.block / p->inputs + 16;
	for (int64_t i = 0; i < outputs; i++) {
		if (i + AHEAD < outputs) {
			fetch(col_idx + r->next[i + AHEAD], expected);
			fetch(values + r->next[i + AHEAD], expected);
		}
		int32_t e = r->next[i], count = find(col_idx, e, ends[i], last) - e;
		int32_t *inputs = r->inputs + i * p->cut.slot;
		float *copies = r->values + i * p->cut.slot;
		for (int32_t j = 0; j < count; j++)
			inputs[j] = col_idx[e + j];
		for (int32_t j = 0; j < count; j++)
			copies[j] = values[e + j];
		for (int32_t j = count; j < count + SPARE; j++) {
			inputs[j] = 0;
			copies[j] = 0;
		}
		r->next[i] = e + count;
		r->ends[i] = (int32_t)(i * p->cut.slot) + count;
	}
}

/* Groups the entries of rows [first, last) in a chunk of columns. A column has
 * at most one from each row, so a slot holds them without counting first. */
static void group_columns(const struct product *p, const struct room *r, int64_t chunk, int64_t first, int64_t last)
{
	const int32_t *starts = p->starts + chunk * p->inputs, *ends = starts + p->inputs, *col_idx = p->col_idx;
	int32_t *next = r->ends, *inputs = r->inputs, o = (int32_t)(chunk * p->cut.chunk);
	float *copies = r->values;
	for (int64_t i = 0; i < p->cut.chunk; i++)
		next[i] = (int32_t)(i * p->cut.slot);
	for (int64_t row = first; row < last; row++) {
		if (row + AHEAD < last) {
			fetch(col_idx + starts[row + AHEAD], ends[row + AHEAD] - starts[row + AHEAD]);
			fetch(p->values + starts[row + AHEAD], ends[row + AHEAD] - starts[row + AHEAD]);
		}
		for (int32_t e = starts[row], end = ends[row]; e < end; e++) {
			int32_t to = next[col_idx[e] - o]++;
			inputs[to] = (int32_t)row;
			copies[to] = p->values[e];
		}
	}
}

/* Items are rows: finds where the chunks of columns start. */
static void cut_rows(const void *job, int64_t first, int64_t last)
{
	const struct product *p = job;
	for (int64_t row = first; row < last; row++) {
		int32_t e = p->row_ptr[row];
		for (int64_t c = 0; c < p->cut.chunks; c++) {
			p->starts[c * p->inputs + row] = e;
			e = find(p->col_idx, e, p->row_ptr[row + 1], (c + 1) * p->cut.chunk);
		}
		p->starts[p->cut.chunks * p->inputs + row] = e;
	}
}

/* Items are input channels. */
static void pack_inputs(const void *job, int64_t first, int64_t last)
{
	const struct product *p = job;
	const dynmo_cpu *k = p->k;
	for (int64_t t = 0; t < p->n; t += k->tile) {
		int64_t tokens = dynmo_min(k->tile, p->n - t);
		k->pack(p->tiles + t * p->inputs + first * k->tile_width(tokens), p->x + t * p->inputs + first, p->inputs, tokens,
			last - first);
	}
}

/* Items are chunks: sets their y. */
static void multiply(const void *job, int64_t first, int64_t last)
{
	const struct product *p = job;
	const dynmo_cpu *k = p->k;
	struct room r = room(p);
	for (int64_t c = first; c < last; c++) {
		int64_t o = c * p->cut.chunk, outputs = dynmo_min(p->cut.chunk, p->outputs - o);
		for (int64_t t = 0; t < p->n; t += k->tile)
			k->fill(r.y + t * outputs, p->bias ? p->bias + o : NULL, outputs, k->tile_width(dynmo_min(k->tile, p->n - t)));
		if (!p->by_column)
			memcpy(r.next, p->row_ptr + o, (size_t)outputs * sizeof *r.next);
		for (int64_t b = 0; b < p->inputs; b += p->cut.block) {
			int64_t end = dynmo_min(p->inputs, b + p->cut.block);
			if (p->by_column)
				group_columns(p, &r, c, b, end);
			else
				group_rows(p, &r, p->values, o, outputs, end);
			for (int64_t t = 0; t < p->n; t += k->tile)
				k->gather(r.y + t * outputs, p->tiles + t * p->inputs, r.ends, p->cut.slot, r.inputs, r.values, outputs,
					k->tile_width(dynmo_min(k->tile, p->n - t)));
		}
		for (int64_t t = 0; t < p->n; t += k->tile)
			k->unpack(p->y + t * p->outputs + o, p->outputs, r.y + t * outputs, dynmo_min(k->tile, p->n - t), outputs);
	}
}

/* Items are chunks: adds to their dvalues. */
static void sample(const void *job, int64_t first, int64_t last)
{
	const struct product *p = job;
	const dynmo_cpu *k = p->k;
	struct room r = room(p);
	for (int64_t c = first; c < last; c++) {
		int64_t o = c * p->cut.chunk, outputs = dynmo_min(p->cut.chunk, p->outputs - o);
		for (int64_t t = 0; t < p->n; t += k->tile)
			k->pack(r.y + t * outputs, p->dy + t * p->outputs + o, p->outputs, dynmo_min(k->tile, p->n - t), outputs);
		memcpy(r.next, p->row_ptr + o, (size_t)outputs * sizeof *r.next);
		for (int64_t b = 0; b < p->inputs; b += p->cut.block) {
			group_rows(p, &r, p->dvalues, o, outputs, dynmo_min(p->inputs, b + p->cut.block));
			for (int64_t t = 0; t < p->n; t += k->tile)
				k->sample(r.values, r.y + t * outputs, p->tiles + t * p->inputs, r.ends, p->cut.slot, r.inputs, outputs,
					k->tile_width(dynmo_min(k->tile, p->n - t)));
			for (int64_t i = 0; i < outputs; i++) {
				int64_t from = i * p->cut.slot, count = r.ends[i] - from;
				memcpy(p->dvalues + r.next[i] - count, r.values + from, (size_t)count * sizeof(float));
			}
		}
	}
}

/* Does a call on n tokens panel by panel. p is at the first. */
static void run(struct product *p, dynmo_part *part, int64_t n)
{
	struct dynmo_team *team = p->k->team;
	if (p->by_column)
		dynmo_parallel(team, p->inputs, ROWS, cut_rows, p);
	for (; n > 0; n -= PANEL) {
		p->n = dynmo_min(PANEL, n);
		dynmo_parallel(team, p->inputs, CHANNELS, pack_inputs, p);
		dynmo_parallel(team, p->cut.chunks, 1, part, p);
		p->x += PANEL * p->inputs;
		if (p->y)
			p->y += PANEL * p->outputs;
		if (p->dy)
			p->dy += PANEL * p->outputs;
	}
}

void dynmo_cpu_spmm_forward(const dynmo_cpu *k, float *work, float *out, const float *inp, const int32_t *row_ptr,
	const int32_t *col_idx, const float *values, const float *bias, int64_t rows, int64_t cols, int64_t n)
{
	struct product p = begin(k, work, BY_ROW, row_ptr, col_idx, cols, rows, row_ptr[rows]);
	p.values = values;
	p.bias = bias;
	p.x = inp;
	p.y = out;
	run(&p, multiply, n);
}

void dynmo_cpu_spmm_backward_input(const dynmo_cpu *k, float *work, float *dinp, const float *dout,
	const int32_t *row_ptr, const int32_t *col_idx, const float *values, int64_t rows, int64_t cols, int64_t n)
{
	struct product p = begin(k, work, BY_COLUMN, row_ptr, col_idx, rows, cols, row_ptr[rows]);
	p.by_column = 1;
	p.values = values;
	p.x = dout;
	p.y = dinp;
	run(&p, multiply, n);
}

void dynmo_cpu_sddmm(const dynmo_cpu *k, float *work, float *dvalues, float *dbias, const float *dout,
	const float *inp, const int32_t *row_ptr, const int32_t *col_idx, int64_t rows, int64_t cols, int64_t n)
{
	struct product p = begin(k, work, BY_ROW, row_ptr, col_idx, cols, rows, row_ptr[rows]);
	p.dvalues = dvalues;
	p.x = inp;
	p.dy = dout;
	if (p.nnz > 0) /* a matrix without entries may have no values to point to */
		run(&p, sample, n);
	if (dbias)
		dynmo_column_sums(k, dbias, dout, n, rows);
}
