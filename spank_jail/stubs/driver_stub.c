/* SPDX-License-Identifier: Apache-2.0 */
/* A stub: an empty library that stands for one of the GPU driver's on nodes without GPUs
 * (docs/decisions/jail-cdi.md). Whatever is linked with the driver loads it.
 *
 * ldconfig finds it by the driver's name. In libcuda and libnvidia-ml the functions with which programs ask for a GPU
 * answer "no", so that programs that can do without go on. Numbers and signatures are the vendor's published
 * interface.
 */
#define EXPORT __attribute__((visibility("default")))

#ifdef STUB_CUDA
enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_NO_DEVICE = 100 };

EXPORT int cuInit(unsigned flags);
EXPORT int cuDriverGetVersion(int *version);

int cuInit(unsigned flags)
{
	(void)flags;
	return CUDA_ERROR_NO_DEVICE;
}

/* 0: older than any toolkit asks for; the CUDA runtime then says that there is no driver. */
int cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = 0;
	return CUDA_SUCCESS;
}
#endif

#ifdef STUB_ML
enum { NVML_ERROR_DRIVER_NOT_LOADED = 9 };

EXPORT int nvmlInit(void);
EXPORT int nvmlInit_v2(void);
EXPORT int nvmlInitWithFlags(unsigned flags);
EXPORT int nvmlShutdown(void);
EXPORT const char *nvmlErrorString(int result);

int nvmlInit(void)
{
	return NVML_ERROR_DRIVER_NOT_LOADED;
}

int nvmlInit_v2(void)
{
	return NVML_ERROR_DRIVER_NOT_LOADED;
}

int nvmlInitWithFlags(unsigned flags)
{
	(void)flags;
	return NVML_ERROR_DRIVER_NOT_LOADED;
}

int nvmlShutdown(void)
{
	return NVML_ERROR_DRIVER_NOT_LOADED;
}

const char *nvmlErrorString(int result)
{
	(void)result;
	return "this node has no GPU driver (a stub library of the jail)";
}
#endif
