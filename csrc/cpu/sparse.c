/* Products with a matrix in compressed rows. Tokens go by tiles, packed channel
 * by channel, so that every kept entry is a multiplication and addition over
 * the tokens of a tile, whatever the pattern is. The entries are first sorted
 * by blocks of input channels, so many that a tile of them stays in L1 while
 * all output channels read it. A sum's order is that of the rows. */
#include "kernels.h"

/* Entries that an output channel should find in a block, on average: enough to
 * pay for its visit, few enough that a tile of a block stays in L1 until the
 * matrix is very sparse. Sorting by row wants smaller blocks, since it writes
 * all over a block's entries. */
enum { BY_COLUMN = 16, BY_ROW = 8 };

/* Input channels of a block: from 16, the least that is worth a visit, to
 * 1024, with which a tile is 256 KB and stays in L2. */
static int64_t block_inputs(int64_t group, int64_t inputs, int64_t outputs, int64_t nnz)
{
	int64_t block = group * inputs * outputs / (nnz + 1);
	return block < 16 ? 16 : dynmo_min(block, 1024);
}

/* A matrix from input to output channels, sorted by (block of inputs, output,
 * input). The group of block b and output o ends before ends[b·outputs + o],
 * where the next one begins. */
struct sorted {
	int64_t block, blocks, outputs; /* inputs of a block; blocks; outputs */
	int32_t *ends;
	struct entry *entries;
	float *x, *y; /* tiles (inputs, tile) and (outputs, tile) */
};

static int64_t group_count(int64_t group, int64_t inputs, int64_t outputs, int64_t nnz)
{
	int64_t block = block_inputs(group, inputs, outputs, nnz);
	return (inputs + block - 1) / block * outputs;
}

int64_t dynmo_cpu_spmm_work(const dynmo_cpu *k, int64_t rows, int64_t cols, int64_t nnz)
{
	int64_t by_column = group_count(BY_COLUMN, cols, rows, nnz), by_row = group_count(BY_ROW, rows, cols, nnz);
	int64_t ends = dynmo_lines(by_column > by_row ? by_column : by_row);
	return dynmo_lines(1) + ends + dynmo_lines(2 * nnz) + (rows + cols) * k->tile;
}

/* Lays out the workspace; everything begins on a cache line. */
static struct sorted place(const dynmo_cpu *k, float *work, int64_t group, int64_t inputs, int64_t outputs,
	int64_t nnz)
{
	struct sorted s = {.block = block_inputs(group, inputs, outputs, nnz), .outputs = outputs};
	s.blocks = (inputs + s.block - 1) / s.block;
	s.x = dynmo_align(work);
	s.y = s.x + inputs * k->tile;
	s.entries = (struct entry *)(s.y + outputs * k->tile);
	s.ends = (int32_t *)(s.entries + dynmo_lines(2 * nnz) / 2);
	return s;
}

/* Sorts the entries with columns as inputs: each row is cut at the blocks. */
static void sort_by_column(const struct sorted *s, const int32_t *row_ptr, const int32_t *col_idx,
	const float *values)
{
	int64_t rows = s->outputs;
	for (int64_t r = 0; r < rows; r++) {
		int32_t e = row_ptr[r];
		for (int64_t b = 0; b < s->blocks; b++) {
			int32_t first = e;
			while (e < row_ptr[r + 1] && col_idx[e] < (b + 1) * s->block)
				e++;
			s->ends[b * rows + r] = e - first;
		}
	}
	for (int64_t g = 1; g < s->blocks * rows; g++)
		s->ends[g] += s->ends[g - 1];
	for (int64_t r = 0; r < rows; r++) {
		int32_t e = row_ptr[r];
		for (int64_t b = 0; b < s->blocks; b++) {
			int64_t g = b * rows + r;
			for (int32_t to = g ? s->ends[g - 1] : 0; to < s->ends[g]; to++, e++)
				s->entries[to] = (struct entry){(int32_t)(col_idx[e] - b * s->block), values ? values[e] : 0};
		}
	}
}

/* Sorts the entries with rows as inputs: a counting sort by column in each
 * block of rows. */
static void sort_by_row(const struct sorted *s, const int32_t *row_ptr, const int32_t *col_idx,
	const float *values, int64_t rows)
{
	int32_t begin = 0;
	for (int64_t b = 0; b < s->blocks; b++) {
		int64_t first = b * s->block, last = dynmo_min(rows, first + s->block);
		int32_t *next = s->ends + b * s->outputs; /* where the next entry of a column goes */
		memset(next, 0, (size_t)s->outputs * sizeof *next);
		for (int32_t e = row_ptr[first]; e < row_ptr[last]; e++)
			next[col_idx[e]]++;
		for (int64_t c = 0; c < s->outputs; c++) {
			int32_t count = next[c];
			next[c] = begin;
			begin += count;
		}
		for (int64_t r = first; r < last; r++)
			for (int32_t e = row_ptr[r]; e < row_ptr[r + 1]; e++)
				s->entries[next[col_idx[e]]++] = (struct entry){(int32_t)(r - first), values[e]};
	}
}

/* Sets y (n, outputs) to x (n, inputs) times the sorted matrix, plus bias. */
static void multiply(const dynmo_cpu *k, const struct sorted *s, float *y, const float *x, const float *bias,
	int64_t inputs, int64_t n)
{
	for (int64_t t = 0; t < n; t += k->tile) {
		int64_t tokens = dynmo_min(k->tile, n - t), width = k->tile_width(tokens);
		k->pack(s->x, x + t * inputs, inputs, tokens, inputs);
		k->fill(s->y, bias, s->outputs, width);
		for (int64_t b = 0; b < s->blocks; b++)
			k->gather(s->y, s->x + b * s->block * width, s->ends + b * s->outputs,
				b ? s->ends[b * s->outputs - 1] : 0, s->entries, s->outputs, width);
		k->unpack(y + t * s->outputs, s->outputs, s->y, tokens, s->outputs);
	}
}

void dynmo_cpu_spmm_forward(const dynmo_cpu *k, float *work, float *out, const float *inp, const int32_t *row_ptr,
	const int32_t *col_idx, const float *values, const float *bias, int64_t rows, int64_t cols, int64_t n)
{
	struct sorted s = place(k, work, BY_COLUMN, cols, rows, row_ptr[rows]);
	sort_by_column(&s, row_ptr, col_idx, values);
	multiply(k, &s, out, inp, bias, cols, n);
}

void dynmo_cpu_spmm_backward_input(const dynmo_cpu *k, float *work, float *dinp, const float *dout,
	const int32_t *row_ptr, const int32_t *col_idx, const float *values, int64_t rows, int64_t cols, int64_t n)
{
	struct sorted s = place(k, work, BY_ROW, rows, cols, row_ptr[rows]);
	sort_by_row(&s, row_ptr, col_idx, values, rows);
	multiply(k, &s, dinp, dout, NULL, rows, n);
}

/* The entries' values are the sums, until all tokens are in. */
void dynmo_cpu_sddmm(const dynmo_cpu *k, float *work, float *dvalues, float *dbias, const float *dout,
	const float *inp, const int32_t *row_ptr, const int32_t *col_idx, int64_t rows, int64_t cols, int64_t n)
{
	struct sorted s = place(k, work, BY_COLUMN, cols, rows, row_ptr[rows]);
	sort_by_column(&s, row_ptr, col_idx, NULL);
	for (int64_t t = 0; t < n; t += k->tile) {
		int64_t tokens = dynmo_min(k->tile, n - t), width = k->tile_width(tokens);
		k->pack(s.x, inp + t * cols, cols, tokens, cols);
		k->pack(s.y, dout + t * rows, rows, tokens, rows);
		for (int64_t b = 0; b < s.blocks; b++)
			k->sample(s.entries, s.y, s.x + b * s.block * width, s.ends + b * rows,
				b ? s.ends[b * rows - 1] : 0, rows, width);
	}
	for (int64_t r = 0; r < rows; r++) {
		float *dvalue = dvalues + row_ptr[r];
		for (int64_t g = r; g < s.blocks * rows; g += rows)
			for (int32_t e = g ? s.ends[g - 1] : 0; e < s.ends[g]; e++)
				*dvalue++ += s.entries[e].value;
	}
	if (dbias)
		k->column_sums(dbias, dout, n, rows);
}
