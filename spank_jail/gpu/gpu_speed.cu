/* SPDX-License-Identifier: Apache-2.0 */
/* gpu-speed: measures the GPUs that a job has, and whether they compute right. node-speed has it run in a job, and so may an
 * administrator; docs/health.md.
 *
 * A line for each GPU, "gpu 0 NAME to-device MB/s from-device MB/s copy MB/s multiply GFLOP/s", and one for all, "all-reduce MB/s", by
 * libnccl where it is there. Exit status: 0 all results are right; 1 one is wrong, and the first line says which; 2 it could not run. */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_GPUS 64
#define TILE 16
#define SIDE 2048
#define TIMES 20
#define BYTES ((size_t)256 << 20)
/* nccl.h: ncclFloat32, ncclSum. */
#define NCCL_FLOAT 7
#define NCCL_SUM 0

enum { RIGHT, WRONG, COULD_NOT_RUN };

static int could_not_run(const char *what, cudaError_t error)
{
	printf("%s: %s\n", what, cudaGetErrorString(error));
	return COULD_NOT_RUN;
}

#define TRY(call)                                              \
	do {                                                   \
		cudaError_t error_ = (call);                   \
		if (error_ != cudaSuccess)                     \
			return could_not_run(#call, error_);   \
	} while (0)

/* Whole numbers, small enough that floats hold each sum exactly: there is one right result. */
__host__ __device__ static float left_of(unsigned row, unsigned column)
{
	return (float)((row * 7 + column * 3) % 5);
}

__host__ __device__ static float right_of(unsigned row, unsigned column)
{
	return (float)((row * 5 + column * 11) % 7);
}

__global__ static void fill(float *left, float *right)
{
	unsigned row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;

	left[row * SIDE + column] = left_of(row, column);
	right[row * SIDE + column] = right_of(row, column);
}

__global__ static void multiply(const float *left, const float *right, float *product)
{
	__shared__ float a[TILE][TILE], b[TILE][TILE];
	unsigned row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
	float sum = 0;

	for (unsigned tile = 0; tile < SIDE; tile += TILE) {
		a[threadIdx.y][threadIdx.x] = left[row * SIDE + tile + threadIdx.x];
		b[threadIdx.y][threadIdx.x] = right[(tile + threadIdx.y) * SIDE + column];
		__syncthreads();
		for (unsigned i = 0; i < TILE; i++)
			sum += a[threadIdx.y][i] * b[i][threadIdx.x];
		__syncthreads();
	}
	product[row * SIDE + column] = sum;
}

/* Counts elements that differ from what whole numbers give. */
__global__ static void compare(const float *product, unsigned *differing)
{
	unsigned row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
	unsigned sum = 0;

	for (unsigned i = 0; i < SIDE; i++)
		sum += ((row * 7 + i * 3) % 5) * ((i * 5 + column * 11) % 7);
	if (product[row * SIDE + column] != (float)sum)
		atomicAdd(differing, 1u);
}

/* Of what is done between two events, in seconds. */
static double seconds_between(cudaEvent_t first, cudaEvent_t second)
{
	float ms = 0;

	cudaEventSynchronize(second);
	cudaEventElapsedTime(&ms, first, second);
	return ms > 0 ? ms / 1e3 : 1e-9;
}

static int copy(void *to, const void *from, enum cudaMemcpyKind kind, double *mb_s)
{
	cudaEvent_t first, second;

	TRY(cudaEventCreate(&first));
	TRY(cudaEventCreate(&second));
	TRY(cudaEventRecord(first));
	for (int i = 0; i < TIMES; i++)
		TRY(cudaMemcpyAsync(to, from, BYTES, kind));
	TRY(cudaEventRecord(second));
	*mb_s = BYTES / 1e6 * TIMES / seconds_between(first, second);
	TRY(cudaDeviceSynchronize());
	cudaEventDestroy(first);
	cudaEventDestroy(second);
	return RIGHT;
}

static int measure_copies(int gpu, double mb_s[3])
{
	void *host, *one, *other;
	int status;

	TRY(cudaMallocHost(&host, BYTES));
	TRY(cudaMalloc(&one, BYTES));
	TRY(cudaMalloc(&other, BYTES));
	for (size_t i = 0; i < BYTES; i++)
		((unsigned char *)host)[i] = (unsigned char)(i * 31 + i / 4096);
	if ((status = copy(one, host, cudaMemcpyHostToDevice, &mb_s[0])) || (status = copy(other, one, cudaMemcpyDeviceToDevice, &mb_s[2])))
		return status;
	memset(host, 0, BYTES);
	if ((status = copy(host, other, cudaMemcpyDeviceToHost, &mb_s[1])))
		return status;
	for (size_t i = 0; i < BYTES; i++)
		if (((unsigned char *)host)[i] != (unsigned char)(i * 31 + i / 4096)) {
			printf("gpu %d: byte %zu of a copy is wrong\n", gpu, i);
			return WRONG;
		}
	cudaFree(one);
	cudaFree(other);
	cudaFreeHost(host);
	return RIGHT;
}

static int measure_product(int gpu, double *gflop_s)
{
	const size_t size = (size_t)SIDE * SIDE * sizeof(float);
	const dim3 blocks(SIDE / TILE, SIDE / TILE), threads(TILE, TILE);
	float *left, *right, *product;
	unsigned *differing, count = 0;
	cudaEvent_t first, second;

	TRY(cudaMalloc(&left, size));
	TRY(cudaMalloc(&right, size));
	TRY(cudaMalloc(&product, size));
	TRY(cudaMalloc(&differing, sizeof(*differing)));
	TRY(cudaMemset(differing, 0, sizeof(*differing)));
	TRY(cudaEventCreate(&first));
	TRY(cudaEventCreate(&second));
	fill<<<blocks, threads>>>(left, right);
	multiply<<<blocks, threads>>>(left, right, product);
	TRY(cudaEventRecord(first));
	for (int i = 0; i < TIMES; i++)
		multiply<<<blocks, threads>>>(left, right, product);
	TRY(cudaEventRecord(second));
	*gflop_s = 2.0 * SIDE * SIDE * SIDE * TIMES / 1e9 / seconds_between(first, second);
	compare<<<blocks, threads>>>(product, differing);
	TRY(cudaGetLastError());
	TRY(cudaMemcpy(&count, differing, sizeof(count), cudaMemcpyDeviceToHost));
	/* One that computes wrong may compare wrong, too: the processor looks at a row. */
	static float row[SIDE];
	TRY(cudaMemcpy(row, product + (size_t)(SIDE - 1) * SIDE, sizeof(row), cudaMemcpyDeviceToHost));
	for (unsigned column = 0; column < SIDE; column++) {
		float sum = 0;
		for (unsigned i = 0; i < SIDE; i++)
			sum += left_of(SIDE - 1, i) * right_of(i, column);
		count += row[column] != sum;
	}
	if (count) {
		printf("gpu %d: %u numbers of a product of matrices are wrong\n", gpu, count);
		return WRONG;
	}
	cudaFree(left);
	cudaFree(right);
	cudaFree(product);
	cudaFree(differing);
	return RIGHT;
}

struct nccl {
	int (*init_all)(void **communicators, int n, const int *gpus);
	int (*all_reduce)(const void *from, void *to, size_t count, int type, int operation, void *communicator, cudaStream_t stream);
	int (*begin)(void);
	int (*end)(void);
};

/* Opened at run time: its package is not everywhere. */
static bool open_nccl(struct nccl *nccl)
{
	void *library = dlopen("libnccl.so.2", RTLD_NOW);

	if (!library)
		return false;
	*(void **)&nccl->init_all = dlsym(library, "ncclCommInitAll");
	*(void **)&nccl->all_reduce = dlsym(library, "ncclAllReduce");
	*(void **)&nccl->begin = dlsym(library, "ncclGroupStart");
	*(void **)&nccl->end = dlsym(library, "ncclGroupEnd");
	return nccl->init_all && nccl->all_reduce && nccl->begin && nccl->end;
}

static int reduce_once(const struct nccl *nccl, int n, void **communicators, float **vectors, size_t count)
{
	if (nccl->begin())
		return COULD_NOT_RUN;
	for (int gpu = 0; gpu < n; gpu++) {
		TRY(cudaSetDevice(gpu));
		if (nccl->all_reduce(vectors[gpu], vectors[n + gpu], count, NCCL_FLOAT, NCCL_SUM, communicators[gpu], 0))
			return COULD_NOT_RUN;
	}
	if (nccl->end())
		return COULD_NOT_RUN;
	for (int gpu = 0; gpu < n; gpu++) {
		TRY(cudaSetDevice(gpu));
		TRY(cudaDeviceSynchronize());
	}
	return RIGHT;
}

static int measure_reduce(int n)
{
	const size_t count = (size_t)16 << 20;
	void *communicators[MOST_GPUS];
	float *vectors[2 * MOST_GPUS], *host = (float *)malloc(count * sizeof(float));
	struct nccl nccl;
	cudaEvent_t first, second;
	int status = RIGHT;

	if (!host || !open_nccl(&nccl)) {
		printf("all-reduce could not run: libnccl.so.2 cannot be opened\n");
		return RIGHT;
	}
	if (nccl.init_all(communicators, n, NULL))
		return could_not_run("ncclCommInitAll", cudaGetLastError());
	for (int gpu = 0; gpu < n; gpu++) {
		TRY(cudaSetDevice(gpu));
		for (size_t i = 0; i < count; i++)
			host[i] = (float)(gpu + (int)(i % 13));
		for (int side = 0; side < 2; side++)
			TRY(cudaMalloc(&vectors[side * n + gpu], count * sizeof(float)));
		TRY(cudaMemcpy(vectors[gpu], host, count * sizeof(float), cudaMemcpyHostToDevice));
	}
	TRY(cudaSetDevice(0));
	TRY(cudaEventCreate(&first));
	TRY(cudaEventCreate(&second));
	if ((status = reduce_once(&nccl, n, communicators, vectors, count)))
		return status;
	TRY(cudaSetDevice(0));
	TRY(cudaEventRecord(first));
	for (int i = 0; i < TIMES && !status; i++)
		status = reduce_once(&nccl, n, communicators, vectors, count);
	TRY(cudaSetDevice(0));
	TRY(cudaEventRecord(second));
	double took = seconds_between(first, second);
	for (int gpu = 0; gpu < n && !status; gpu++) {
		TRY(cudaMemcpy(host, vectors[n + gpu], count * sizeof(float), cudaMemcpyDeviceToHost));
		for (size_t i = 0; i < count && !status; i++)
			if (host[i] != (float)(n * (n - 1) / 2 + n * (int)(i % 13))) {
				printf("gpu %d: number %zu of a sum over all GPUs is wrong\n", gpu, i);
				status = WRONG;
			}
	}
	if (!status)
		printf("all-reduce %.0f MB/s over %d GPUs\n", count * sizeof(float) / 1e6 * TIMES / took, n);
	free(host);
	return status;
}

int main(void)
{
	int n = 0, status = RIGHT;
	cudaError_t error = cudaGetDeviceCount(&n);

	if (error != cudaSuccess || !n)
		return could_not_run("no GPU", error);
	n = n < MOST_GPUS ? n : MOST_GPUS;
	for (int gpu = 0; gpu < n && !status; gpu++) {
		struct cudaDeviceProp properties;
		double mb_s[3], gflop_s;
		TRY(cudaSetDevice(gpu));
		TRY(cudaGetDeviceProperties(&properties, gpu));
		if ((status = measure_copies(gpu, mb_s)) || (status = measure_product(gpu, &gflop_s)))
			break;
		printf("gpu %d %s to-device %.0f MB/s from-device %.0f MB/s copy %.0f MB/s multiply %.0f GFLOP/s\n", gpu, properties.name,
		       mb_s[0], mb_s[1], mb_s[2], gflop_s);
	}
	return status ? status : measure_reduce(n);
}
