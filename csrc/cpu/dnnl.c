/* See dnnl.h. Versions 2 and 3 of oneDNN differ in the functions that make descriptors: version 2 fills
 * structures of the caller, version 3 returns handles. No header of oneDNN is needed. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dnnl.h"

/* Of oneDNN's dnnl_types.h, equal in versions 2 and 3. */
enum {
	CPU = 1, IN_ORDER = 1, BFLOAT16 = 2, FLOAT32 = 3, USER = 1,
	SCRATCHPAD = 136,
	ARG_SRC = 1, ARG_DST = 17, ARG_WEIGHTS = 33, ARG_BIAS = 41, ARG_SCRATCHPAD = 80,
};

/* A descriptor of memory: a handle, or the 696 bytes that version 2 writes. */
union descriptor {
	void *handle;
	char bytes[1024];
};

enum { PRODUCT_BYTES = 4096 }; /* version 2 writes 2800 for a product */

struct argument {
	int number;
	void *memory;
};

struct version {
	int major, minor, patch;
};

/* The functions of the library. Those of one version only are NULL in the other. */
static struct {
	const struct version *(*version)(void);
	int (*engine_create)(void **engine, int kind, size_t index);
	int (*stream_create)(void **stream, void *engine, unsigned flags);
	int (*attr_create)(void **attr);
	int (*attr_scratchpad)(void *attr, int mode);
	int (*attr_post_ops)(void *attr, const void *ops);
	int (*attr_destroy)(void *attr);
	int (*ops_create)(void **ops);
	int (*ops_destroy)(void *ops);
	int (*sum_2)(void *ops, float scale);
	int (*sum_3)(void *ops, float scale, int32_t zero_point, int type);
	int (*strided)(void *desc, int n, const int64_t *dims, int type, const int64_t *strides);
	int (*forget_3)(void *desc);
	int (*product_2)(void *desc, const void *src, const void *weights, const void *bias, const void *dst);
	int (*describe_2)(void **pd, const void *desc, const void *attr, void *engine, const void *hint);
	int (*product_3)(void **pd, void *engine, const void *src, const void *weights, const void *bias, const void *dst,
		const void *attr);
	const void *(*query_memory)(const void *pd, int what, int index);
	int (*describe_destroy)(void *pd);
	int (*primitive_create)(void **p, const void *pd);
	int (*primitive_destroy)(void *p);
	int (*execute)(const void *p, void *stream, int n, const struct argument *args);
	size_t (*size)(const void *desc);
	int (*memory_create)(void **memory, const void *desc, void *engine, void *data);
	int (*memory_destroy)(void *memory);
	void (*threads)(int n); /* of OpenMP, NULL in a build with other threads */
} dnnl;

static const struct {
	void *function;
	const char *name;
	int version; /* 0: both */
} functions[] = {
	{&dnnl.version, "dnnl_version", 0},
	{&dnnl.engine_create, "dnnl_engine_create", 0},
	{&dnnl.stream_create, "dnnl_stream_create", 0},
	{&dnnl.attr_create, "dnnl_primitive_attr_create", 0},
	{&dnnl.attr_scratchpad, "dnnl_primitive_attr_set_scratchpad_mode", 0},
	{&dnnl.attr_post_ops, "dnnl_primitive_attr_set_post_ops", 0},
	{&dnnl.attr_destroy, "dnnl_primitive_attr_destroy", 0},
	{&dnnl.ops_create, "dnnl_post_ops_create", 0},
	{&dnnl.ops_destroy, "dnnl_post_ops_destroy", 0},
	{&dnnl.sum_2, "dnnl_post_ops_append_sum", 2},
	{&dnnl.sum_3, "dnnl_post_ops_append_sum", 3},
	{&dnnl.strided, "dnnl_memory_desc_init_by_strides", 2},
	{&dnnl.strided, "dnnl_memory_desc_create_with_strides", 3},
	{&dnnl.forget_3, "dnnl_memory_desc_destroy", 3},
	{&dnnl.product_2, "dnnl_matmul_desc_init", 2},
	{&dnnl.describe_2, "dnnl_primitive_desc_create", 2},
	{&dnnl.product_3, "dnnl_matmul_primitive_desc_create", 3},
	{&dnnl.query_memory, "dnnl_primitive_desc_query_md", 0},
	{&dnnl.describe_destroy, "dnnl_primitive_desc_destroy", 0},
	{&dnnl.primitive_create, "dnnl_primitive_create", 0},
	{&dnnl.primitive_destroy, "dnnl_primitive_destroy", 0},
	{&dnnl.execute, "dnnl_primitive_execute", 0},
	{&dnnl.size, "dnnl_memory_desc_get_size", 0},
	{&dnnl.memory_create, "dnnl_memory_create", 0},
	{&dnnl.memory_destroy, "dnnl_memory_destroy", 0},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char complaint[512], name[64];
static void *engine;
static _Thread_local void *stream;

static int failed(const char *what)
{
	snprintf(complaint, sizeof complaint, "%s", what);
	return 0;
}

/* Adds to the name which instructions the library takes. Bits depend on them. */
static void name_instructions(void *handle)
{
	int (*instructions)(void);
	*(void **)&instructions = dlsym(handle, "dnnl_get_effective_cpu_isa");
	if (instructions != NULL) {
		size_t used = strlen(name);
		snprintf(name + used, sizeof name - used, " isa %#x", (unsigned)instructions());
	}
}

static int load(void)
{
	/* Debian's 3.x has a name of its own. */
	static const char *const files[] = {"libdnnl.so.3", "libdnnl.so.3.6", "libdnnl.so.2", NULL};
	const char *chosen = getenv("DYNMO_DNNL_LIBRARY");
	void *handle = NULL;
	if (chosen != NULL && strcmp(chosen, "none") == 0)
		return failed("DYNMO_DNNL_LIBRARY is none");
	if (chosen != NULL && *chosen != 0)
		handle = dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
	else
		for (int i = 0; handle == NULL && files[i] != NULL; i++)
			handle = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
	if (handle == NULL)
		return failed(dlerror());
	int major = 0;
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		if (functions[i].version != 0 && functions[i].version != major)
			continue;
		/* POSIX lets a function's address be kept as an object's. */
		void *f = dlsym(handle, functions[i].name);
		if (f == NULL)
			return failed(dlerror());
		*(void **)functions[i].function = f;
		if (i > 0)
			continue;
		const struct version *v = dnnl.version();
		major = v->major;
		if (major != 2 && major != 3) {
			snprintf(complaint, sizeof complaint, "oneDNN %d.%d.%d: want version 2 or 3", major, v->minor, v->patch);
			return 0;
		}
		snprintf(name, sizeof name, "oneDNN %d.%d.%d", major, v->minor, v->patch);
	}
	*(void **)&dnnl.threads = dlsym(handle, "omp_set_num_threads");
	if (dnnl.engine_create(&engine, CPU, 0) != 0)
		return failed("oneDNN has no engine for this CPU");
	name_instructions(handle);
	return 1;
}

static void load_once(void)
{
	if (load())
		*complaint = 0;
}

const char *dynmo_dnnl_open(void)
{
	pthread_once(&once, load_once);
	return *complaint ? complaint : NULL;
}

const char *dynmo_dnnl_name(void) { return name; }

int32_t dynmo_dnnl_multiplies(int32_t wide)
{
	struct dynmo_product *product = dynmo_dnnl_product(&(struct dynmo_shape){
		.m = 16, .n = 64, .k = 64, .lda = 64, .ldb = 64, .ldc = 64, .wide = wide});
	if (product != NULL)
		dynmo_dnnl_free(product);
	return product != NULL;
}

int32_t dynmo_dnnl_adds_slowly(void) { return dnnl.product_3 != NULL; }

/* Makes oneDNN stay on the calling thread, and makes its stream. */
static int alone(void)
{
	if (stream != NULL)
		return 0;
	if (dnnl.threads != NULL)
		dnnl.threads(1);
	return dnnl.stream_create(&stream, engine, IN_ORDER);
}

struct dynmo_product {
	void *description, *multiply;
	const void *scratch; /* a descriptor that the description holds */
	union descriptor a, b, bias, c;
};

/* Returns a descriptor as functions of the library take it. */
static const void *of(const union descriptor *d) { return dnnl.product_3 ? d->handle : d; }

static void forget(const union descriptor *d)
{
	if (dnnl.forget_3 && d->handle)
		dnnl.forget_3(d->handle);
}

/* Describes a matrix. The elements of its columns are adjacent if it is turned. */
static int strided(union descriptor *d, int64_t rows, int64_t columns, int64_t ld, int turned, int type)
{
	return dnnl.strided(d, 2, (int64_t[]){rows, columns}, type, (int64_t[]){turned ? 1 : ld, turned ? ld : 1});
}

static int add_to_c(void *attr)
{
	void *ops = NULL;
	int status = dnnl.ops_create(&ops);
	if (status != 0)
		return status;
	status = dnnl.sum_3 ? dnnl.sum_3(ops, 1, 0, 0) : dnnl.sum_2(ops, 1);
	if (status == 0)
		status = dnnl.attr_post_ops(attr, ops);
	dnnl.ops_destroy(ops);
	return status;
}

/* Sets p->description. */
static int describe(const struct dynmo_shape *s, struct dynmo_product *p)
{
	_Alignas(16) char product[PRODUCT_BYTES];
	void *attr = NULL;
	const void *bias = s->bias ? of(&p->bias) : NULL;
	int status = dnnl.attr_create(&attr);
	if (status != 0)
		return status;
	status = dnnl.attr_scratchpad(attr, USER);
	if (status == 0 && s->add)
		status = add_to_c(attr);
	if (status == 0 && dnnl.product_3)
		status = dnnl.product_3(&p->description, engine, of(&p->a), of(&p->b), bias, of(&p->c), attr);
	else if (status == 0 && (status = dnnl.product_2(product, &p->a, &p->b, bias, &p->c)) == 0)
		status = dnnl.describe_2(&p->description, product, attr, engine, NULL);
	dnnl.attr_destroy(attr);
	return status;
}

static int complete(const struct dynmo_shape *s, struct dynmo_product *p)
{
	int type = s->wide ? FLOAT32 : BFLOAT16;
	if (strided(&p->a, s->m, s->k, s->lda, s->transpose_a, type) != 0 ||
		strided(&p->b, s->k, s->n, s->ldb, s->transpose_b, type) != 0 ||
		strided(&p->bias, 1, s->n, s->n, 0, FLOAT32) != 0 || strided(&p->c, s->m, s->n, s->ldc, 0, FLOAT32) != 0 ||
		describe(s, p) != 0)
		return 0;
	p->scratch = dnnl.query_memory(p->description, SCRATCHPAD, 0);
	return dnnl.primitive_create(&p->multiply, p->description) == 0;
}

struct dynmo_product *dynmo_dnnl_product(const struct dynmo_shape *shape)
{
	struct dynmo_product *p = calloc(1, sizeof *p);
	if (p == NULL || (alone() == 0 && complete(shape, p)))
		return p;
	dynmo_dnnl_free(p);
	return NULL;
}

void dynmo_dnnl_free(struct dynmo_product *p)
{
	if (p->multiply)
		dnnl.primitive_destroy(p->multiply);
	if (p->description)
		dnnl.describe_destroy(p->description);
	const union descriptor *all[] = {&p->a, &p->b, &p->bias, &p->c};
	for (int i = 0; i < 4; i++)
		forget(all[i]);
	free(p);
}

int64_t dynmo_dnnl_scratch(const struct dynmo_product *p) { return (int64_t)dnnl.size(p->scratch); }

int32_t dynmo_dnnl_multiply(const struct dynmo_product *p, void *scratch, float *c, const void *a, const void *b,
	const float *bias)
{
	const struct {
		int number;
		const void *desc, *data;
	} operands[] = {{ARG_SRC, of(&p->a), a}, {ARG_WEIGHTS, of(&p->b), b}, {ARG_BIAS, of(&p->bias), bias}, {ARG_DST, of(&p->c), c},
		{ARG_SCRATCHPAD, p->scratch, scratch}};
	struct argument args[5];
	int given = 0, status = alone();
	for (int i = 0; i < 5 && status == 0; i++)
		if (operands[i].data != NULL) {
			args[given].number = operands[i].number;
			status = dnnl.memory_create(&args[given].memory, operands[i].desc, engine, (void *)(uintptr_t)operands[i].data);
			given += status == 0;
		}
	if (status == 0)
		status = dnnl.execute(p->multiply, stream, given, args);
	for (int i = 0; i < given; i++)
		dnnl.memory_destroy(args[i].memory);
	return status;
}
