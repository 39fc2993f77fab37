/* Products y = x·M with a sparse matrix of whole blocks of 32 x 32 entries, in compressed rows. M
 * leads from input to output channels: forward its rows are the outputs, backward the inputs. The
 * entries of 32 rows lie together as a dense matrix (32, 32·blocks), here called a strip. So the
 * product of one block is a dense product (k->block), whose sums stay in registers.
 *
 * A call takes PANEL tokens at a time, and packs x and dy of these tokens once. Products with
 * activations pack tiles of tokens, channel by channel. The gradient of values is a sum over tokens:
 * it packs 32 channels at a time, token by token.
 *
 * Sums over channels add blocks, and the channels of a block, in ascending order. Sums over tokens add
 * tokens in ascending order. Threads share the blocks of the result. */
#include "kernels.h"

enum { SIDE = DYNMO_BLOCK, PANEL = 256 /* tokens: whole tiles */ };

int64_t dynmo_cpu_blocks_work(int64_t rows, int64_t cols) { return dynmo_lines(1) + (rows + cols) * PANEL; }

/* A call, at one panel of n tokens. */
struct product {
	const dynmo_cpu *k;
	const int32_t *row_ptr, *col_idx;
	const float *values, *bias;
	const float *x, *dy;     /* (n, inputs), (n, outputs) */
	float *y, *dvalues;      /* (n, outputs), (nnz) */
	int64_t inputs, outputs; /* columns and rows of the matrix; transposed: rows and columns */
	int64_t n;
	float *of_x, *of_y; /* packed: x, and y or dy */
};

static struct product begin(const dynmo_cpu *k, float *work, const int32_t *row_ptr, const int32_t *col_idx,
	int64_t inputs, int64_t outputs)
{
	float *packed = dynmo_align(work);
	return (struct product){.k = k, .row_ptr = row_ptr, .col_idx = col_idx, .inputs = inputs, .outputs = outputs,
		.of_x = packed, .of_y = packed + inputs * PANEL};
}

/* The entries of 32 rows of the matrix. */
struct strip {
	int64_t first;  /* the first entry */
	int64_t blocks; /* the number of blocks */
};

/* Returns the strip of row block `row`. */
static struct strip strip(const struct product *p, int64_t row)
{
	int64_t first = p->row_ptr[row * SIDE];
	return (struct strip){first, (p->row_ptr[row * SIDE + 1] - first) / SIDE};
}

/* Returns the column, in blocks, of a block of a strip. */
static int64_t column(const struct product *p, struct strip s, int64_t block) { return p->col_idx[s.first + block * SIDE] / SIDE; }

/* Return the tile of 32 channels that begins at token t, in packed x and in packed y. `width` is that
 * of the tile (see tile_width). */
static float *x_tile(const struct product *p, int64_t t, int64_t block, int64_t width)
{
	return p->of_x + t * p->inputs + block * SIDE * width;
}

static float *y_tile(const struct product *p, int64_t t, int64_t block, int64_t width)
{
	return p->of_y + t * p->outputs + block * SIDE * width;
}

/* Returns the floats that a channel takes in the tile that begins at token t. */
static int64_t tile_width(const struct product *p, int64_t t) { return p->k->tile_width(dynmo_min(p->k->tile, p->n - t)); }

/* Packs a range of blocks of 32 inputs into tiles. */
static void pack_inputs(const void *job, int64_t first, int64_t last)
{
	const struct product *p = job;
	const dynmo_cpu *k = p->k;
	for (int64_t t = 0; t < p->n; t += k->tile)
		k->pack(x_tile(p, t, first, tile_width(p, t)), p->x + t * p->inputs + first * SIDE, p->inputs,
			dynmo_min(k->tile, p->n - t), (last - first) * SIDE);
}

/* Sets the tiles of 32 outputs to their bias or 0. */
static void fill_tiles(const struct product *p, int64_t block)
{
	for (int64_t t = 0; t < p->n; t += p->k->tile)
		p->k->fill(y_tile(p, t, block, tile_width(p, t)), p->bias ? p->bias + block * SIDE : NULL, SIDE, tile_width(p, t));
}

/* Copies the tiles of 32 outputs to y. */
static void unpack_tiles(const struct product *p, int64_t block)
{
	const dynmo_cpu *k = p->k;
	for (int64_t t = 0; t < p->n; t += k->tile)
		k->unpack(p->y + t * p->outputs + block * SIDE, p->outputs, y_tile(p, t, block, tile_width(p, t)),
			dynmo_min(k->tile, p->n - t), SIDE);
}

/* Sets y for a range of row blocks. */
static void multiply(const void *job, int64_t first, int64_t last)
{
	const struct product *p = job;
	for (int64_t row = first; row < last; row++) {
		struct strip s = strip(p, row);
		fill_tiles(p, row);
		for (int64_t t = 0; t < p->n; t += p->k->tile) {
			int64_t width = tile_width(p, t);
			for (int64_t b = 0; b < s.blocks; b++)
				p->k->block(y_tile(p, t, row, width), width, x_tile(p, t, column(p, s, b), width), width,
					p->values + s.first + b * SIDE, s.blocks * SIDE, 1, SIDE, width);
		}
		unpack_tiles(p, row);
	}
}

/* Sets y for a range of column blocks, by the transposed matrix. Every strip can have blocks in these
 * columns, so it searches all of them. */
static void multiply_transposed(const void *job, int64_t first, int64_t last)
{
	const struct product *p = job;
	for (int64_t c = first; c < last; c++)
		fill_tiles(p, c);
	for (int64_t t = 0; t < p->n; t += p->k->tile) {
		int64_t width = tile_width(p, t);
		for (int64_t row = 0; row < p->inputs / SIDE; row++) {
			struct strip s = strip(p, row);
			for (int64_t b = 0; b < s.blocks; b++) {
				int64_t c = column(p, s, b);
				if (first <= c && c < last)
					p->k->block(y_tile(p, t, c, width), width, x_tile(p, t, row, width), width,
						p->values + s.first + b * SIDE, 1, s.blocks * SIDE, SIDE, width);
			}
		}
	}
	for (int64_t c = first; c < last; c++)
		unpack_tiles(p, c);
}

/* Packs x (n, channels) token by token, 32 channels at a time, for blocks [first, last) of channels. */
static void pack_tokens(const struct product *p, float *packed, const float *x, int64_t channels, int64_t first, int64_t last)
{
	for (int64_t block = first; block < last; block++)
		for (int64_t t = 0; t < p->n; t++)
			memcpy(packed + (block * p->n + t) * SIDE, x + t * channels + block * SIDE, SIDE * sizeof *x);
}

/* Packs x and dy. Items are first the blocks of columns (x), then the blocks of rows (dy). */
static void pack_both(const void *job, int64_t first, int64_t last)
{
	const struct product *p = job;
	int64_t columns = p->inputs / SIDE;
	pack_tokens(p, p->of_x, p->x, p->inputs, first, dynmo_min(last, columns));
	if (last > columns)
		pack_tokens(p, p->of_y, p->dy, p->outputs, first > columns ? first - columns : 0, last - columns);
}

/* Adds to dvalues for a range of row blocks: the products dyᵀ·x over the tokens of the panel. */
static void sample(const void *job, int64_t first, int64_t last)
{
	const struct product *p = job;
	for (int64_t row = first; row < last; row++) {
		struct strip s = strip(p, row);
		for (int64_t b = 0; b < s.blocks; b++)
			p->k->block(p->dvalues + s.first + b * SIDE, s.blocks * SIDE, p->of_x + column(p, s, b) * p->n * SIDE, SIDE,
				p->of_y + row * p->n * SIDE, 1, SIDE, p->n, SIDE);
	}
}

/* Runs a call on n tokens, panel by panel. For each panel it runs pack on `operands` items, 4 at a time,
 * and then part on `results` items, `grain` at a time. p has the pointers of the first token. */
static void run(struct product *p, dynmo_part *pack, int64_t operands, dynmo_part *part, int64_t results, int64_t grain,
	int64_t n)
{
	for (; n > 0; n -= PANEL) {
		p->n = dynmo_min(PANEL, n);
		dynmo_parallel(p->k->team, operands, 4, pack, p);
		dynmo_parallel(p->k->team, results, grain, part, p);
		p->x += PANEL * p->inputs;
		if (p->y)
			p->y += PANEL * p->outputs;
		if (p->dy)
			p->dy += PANEL * p->outputs;
	}
}

void dynmo_cpu_blocks_forward(const dynmo_cpu *k, float *work, float *out, const float *inp, const int32_t *row_ptr,
	const int32_t *col_idx, const float *values, const float *bias, int64_t rows, int64_t cols, int64_t n)
{
	struct product p = begin(k, work, row_ptr, col_idx, cols, rows);
	p.values = values;
	p.bias = bias;
	p.x = inp;
	p.y = out;
	run(&p, pack_inputs, cols / SIDE, multiply, rows / SIDE, 1, n);
}

void dynmo_cpu_blocks_backward_input(const dynmo_cpu *k, float *work, float *dinp, const float *dout,
	const int32_t *row_ptr, const int32_t *col_idx, const float *values, int64_t rows, int64_t cols, int64_t n)
{
	struct product p = begin(k, work, row_ptr, col_idx, rows, cols);
	int64_t columns = cols / SIDE;
	p.values = values;
	p.x = dout;
	p.y = dinp;
	/* few ranges of columns, since each range searches all rows */
	run(&p, pack_inputs, rows / SIDE, multiply_transposed, columns, columns / (4 * dynmo_team_size(k->team)) + 1, n);
}

void dynmo_cpu_blocks_sample(const dynmo_cpu *k, float *work, float *dvalues, float *dbias, const float *dout,
	const float *inp, const int32_t *row_ptr, const int32_t *col_idx, int64_t rows, int64_t cols, int64_t n)
{
	struct product p = begin(k, work, row_ptr, col_idx, cols, rows);
	p.dvalues = dvalues;
	p.x = inp;
	p.dy = dout;
	if (row_ptr[rows] > row_ptr[0]) /* a matrix without entries may have no values to point to */
		run(&p, pack_both, (rows + cols) / SIDE, sample, rows / SIDE, 1, n);
	if (dbias)
		dynmo_column_sums(k, dbias, dout, n, rows);
}
