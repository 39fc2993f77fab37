/* Products y = x·M with a matrix in compressed rows whose entries are whole blocks of
 * 32 x 32: those of 32 rows together are a dense matrix (32, 32·blocks), so a block is a
 * product of dense ones, whose sums stay in registers.
 *
 * Tokens go by panels, of which the operands are packed once: by tiles of tokens, channel
 * by channel, where a block multiplies them, and by 32 channels, token by token, where it is
 * the sum over tokens. A sum over channels has the order of the blocks and of the channels
 * in them, one over tokens that of the tokens. Threads share blocks of outputs. */
#include "kernels.h"

enum { SIDE = DYNMO_BLOCK, PANEL = 256 /* tokens: whole tiles */ };

int64_t dynmo_cpu_blocks_work(int64_t rows, int64_t cols) { return dynmo_lines(1) + (rows + cols) * PANEL; }

/* A call, at one panel of n tokens. */
struct product {
	const dynmo_cpu *k;
	const int32_t *row_ptr, *col_idx;
	const float *values, *bias;
	const float *x, *dy; /* (n, inputs), (n, outputs) */
	float *y, *dvalues;  /* (n, outputs), (nnz) */
	int64_t rows, cols, n;
	float *of_cols, *of_rows; /* packed activations of the matrix's columns and rows */
};

static struct product begin(const dynmo_cpu *k, float *work, const int32_t *row_ptr, const int32_t *col_idx,
	int64_t rows, int64_t cols)
{
	float *packed = dynmo_align(work);
	return (struct product){.k = k, .row_ptr = row_ptr, .col_idx = col_idx, .rows = rows, .cols = cols,
		.of_cols = packed, .of_rows = packed + cols * PANEL};
}

/* The blocks of 32 rows. */
struct strip {
	int64_t first, blocks; /* entry; blocks in it */
};

static struct strip strip(const struct product *p, int64_t row)
{
	int64_t first = p->row_ptr[row * SIDE];
	return (struct strip){first, (p->row_ptr[row * SIDE + 1] - first) / SIDE};
}

static int64_t column(const struct product *p, struct strip s, int64_t block) { return p->col_idx[s.first + block * SIDE] / SIDE; }

/* The tile that begins at token t of 32 channels. */
static float *tile(float *packed, int64_t channels, int64_t t, int64_t block, int64_t width)
{
	return packed + t * channels + block * SIDE * width;
}

static int64_t tile_width(const struct product *p, int64_t t) { return p->k->tile_width(dynmo_min(p->k->tile, p->n - t)); }

static void pack_tiles(const struct product *p, float *tiles, const float *x, int64_t channels, int64_t first, int64_t last)
{
	const dynmo_cpu *k = p->k;
	for (int64_t t = 0; t < p->n; t += k->tile)
		k->pack(tile(tiles, channels, t, first, tile_width(p, t)), x + t * channels + first * SIDE, channels,
			dynmo_min(k->tile, p->n - t), (last - first) * SIDE);
}

/* Sets y of 32 channels from its tiles. */
static void unpack_tiles(const struct product *p, float *tiles, int64_t channels, int64_t block)
{
	const dynmo_cpu *k = p->k;
	for (int64_t t = 0; t < p->n; t += k->tile)
		k->unpack(p->y + t * channels + block * SIDE, channels, tile(tiles, channels, t, block, tile_width(p, t)),
			dynmo_min(k->tile, p->n - t), SIDE);
}

static void fill_tiles(const struct product *p, float *tiles, int64_t channels, int64_t block)
{
	for (int64_t t = 0; t < p->n; t += p->k->tile)
		p->k->fill(tile(tiles, channels, t, block, tile_width(p, t)), p->bias ? p->bias + block * SIDE : NULL, SIDE,
			tile_width(p, t));
}

/* Items are blocks of columns. */
static void pack_inputs(const void *job, int64_t first, int64_t last, int32_t member)
{
	const struct product *p = job;
	(void)member;
	pack_tiles(p, p->of_cols, p->x, p->cols, first, last);
}

/* Items are blocks of rows: sets their y. */
static void multiply(const void *job, int64_t first, int64_t last, int32_t member)
{
	const struct product *p = job;
	(void)member;
	for (int64_t row = first; row < last; row++) {
		struct strip s = strip(p, row);
		fill_tiles(p, p->of_rows, p->rows, row);
		for (int64_t t = 0; t < p->n; t += p->k->tile) {
			int64_t width = tile_width(p, t);
			for (int64_t b = 0; b < s.blocks; b++)
				p->k->block(tile(p->of_rows, p->rows, t, row, width), width,
					tile(p->of_cols, p->cols, t, column(p, s, b), width), width, p->values + s.first + b * SIDE,
					s.blocks * SIDE, 1, SIDE, width);
		}
		unpack_tiles(p, p->of_rows, p->rows, row);
	}
}

/* Items are blocks of rows, whose activations are the inputs of the transposed matrix. */
static void pack_outputs(const void *job, int64_t first, int64_t last, int32_t member)
{
	const struct product *p = job;
	(void)member;
	pack_tiles(p, p->of_rows, p->x, p->rows, first, last);
}

/* Items are blocks of columns: sets their y by the transposed matrix, of which every block
 * of rows has some. */
static void multiply_transposed(const void *job, int64_t first, int64_t last, int32_t member)
{
	const struct product *p = job;
	(void)member;
	for (int64_t c = first; c < last; c++)
		fill_tiles(p, p->of_cols, p->cols, c);
	for (int64_t t = 0; t < p->n; t += p->k->tile) {
		int64_t width = tile_width(p, t);
		for (int64_t row = 0; row < p->rows / SIDE; row++) {
			struct strip s = strip(p, row);
			for (int64_t b = 0; b < s.blocks; b++) {
				int64_t c = column(p, s, b);
				if (first <= c && c < last)
					p->k->block(tile(p->of_cols, p->cols, t, c, width), width, tile(p->of_rows, p->rows, t, row, width),
						width, p->values + s.first + b * SIDE, 1, s.blocks * SIDE, SIDE, width);
			}
		}
	}
	for (int64_t c = first; c < last; c++)
		unpack_tiles(p, p->of_cols, p->cols, c);
}

/* Copies each 32 of some channels token by token. */
static void pack_tokens(const struct product *p, float *packed, const float *x, int64_t channels, int64_t first, int64_t last)
{
	for (int64_t block = first; block < last; block++)
		for (int64_t t = 0; t < p->n; t++)
			memcpy(packed + (block * p->n + t) * SIDE, x + t * channels + block * SIDE, SIDE * sizeof *x);
}

/* Items are blocks of columns, then of rows. */
static void pack_both(const void *job, int64_t first, int64_t last, int32_t member)
{
	const struct product *p = job;
	int64_t columns = p->cols / SIDE;
	(void)member;
	pack_tokens(p, p->of_cols, p->x, p->cols, first, dynmo_min(last, columns));
	if (last > columns)
		pack_tokens(p, p->of_rows, p->dy, p->rows, first > columns ? first - columns : 0, last - columns);
}

/* Items are blocks of rows: adds to their dvalues. */
static void sample(const void *job, int64_t first, int64_t last, int32_t member)
{
	const struct product *p = job;
	(void)member;
	for (int64_t row = first; row < last; row++) {
		struct strip s = strip(p, row);
		for (int64_t b = 0; b < s.blocks; b++)
			p->k->block(p->dvalues + s.first + b * SIDE, s.blocks * SIDE, p->of_cols + column(p, s, b) * p->n * SIDE, SIDE,
				p->of_rows + row * p->n * SIDE, 1, SIDE, p->n, SIDE);
	}
}

/* Does a call on n tokens panel by panel: packs `operands` blocks of 32 channels, then does
 * `outputs` blocks. p is at the first token. */
static void run(struct product *p, dynmo_part *pack, int64_t operands, dynmo_part *part, int64_t outputs, int64_t n)
{
	int64_t inputs = part == multiply_transposed ? p->rows : p->cols, members = dynmo_team_size(p->k->team);
	for (; n > 0; n -= PANEL) {
		p->n = dynmo_min(PANEL, n);
		dynmo_parallel(p->k->team, operands, 4, pack, p);
		/* columns by few ranges, since each goes through all rows */
		dynmo_parallel(p->k->team, outputs, part == multiply_transposed ? outputs / (4 * members) + 1 : 1, part, p);
		p->x += PANEL * inputs;
		if (p->y)
			p->y += PANEL * (p->rows + p->cols - inputs);
		if (p->dy)
			p->dy += PANEL * p->rows;
	}
}

void dynmo_cpu_blocks_forward(const dynmo_cpu *k, float *work, float *out, const float *inp, const int32_t *row_ptr,
	const int32_t *col_idx, const float *values, const float *bias, int64_t rows, int64_t cols, int64_t n)
{
	struct product p = begin(k, work, row_ptr, col_idx, rows, cols);
	p.values = values;
	p.bias = bias;
	p.x = inp;
	p.y = out;
	run(&p, pack_inputs, cols / SIDE, multiply, rows / SIDE, n);
}

void dynmo_cpu_blocks_backward_input(const dynmo_cpu *k, float *work, float *dinp, const float *dout,
	const int32_t *row_ptr, const int32_t *col_idx, const float *values, int64_t rows, int64_t cols, int64_t n)
{
	struct product p = begin(k, work, row_ptr, col_idx, rows, cols);
	p.values = values;
	p.x = dout;
	p.y = dinp;
	run(&p, pack_outputs, rows / SIDE, multiply_transposed, cols / SIDE, n);
}

void dynmo_cpu_blocks_sample(const dynmo_cpu *k, float *work, float *dvalues, float *dbias, const float *dout,
	const float *inp, const int32_t *row_ptr, const int32_t *col_idx, int64_t rows, int64_t cols, int64_t n)
{
	struct product p = begin(k, work, row_ptr, col_idx, rows, cols);
	p.dvalues = dvalues;
	p.x = inp;
	p.dy = dout;
	if (row_ptr[rows] > row_ptr[0]) /* a matrix without entries may have no values to point to */
		run(&p, pack_both, (rows + cols) / SIDE, sample, rows / SIDE, n);
	if (dbias)
		dynmo_column_sums(k, dbias, dout, n, rows);
}
