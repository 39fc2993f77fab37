"""The clocks of the first GPU twice a second, until killed, as NVML tells them: a line of
seconds since 1970, MHz of SMs and of memory, watts, degrees."""

import ctypes
import sys
import time

SM, MEMORY, ON_DIE = 1, 2, 0  # nvmlClockType_t, nvmlTemperatureSensors_t


def library():
    for name in "libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1":
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    sys.exit("gpu_clocks: no libnvidia-ml.so.1")


def main():
    nvml, device = library(), ctypes.c_void_p()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
        sys.exit("gpu_clocks: NVML has no GPU")

    def read(call, *which):
        number = ctypes.c_uint()
        return "" if call(device, *which, ctypes.byref(number)) else number.value

    while True:
        watts = read(nvml.nvmlDeviceGetPowerUsage)
        print(int(time.time()), read(nvml.nvmlDeviceGetClockInfo, SM), read(nvml.nvmlDeviceGetClockInfo, MEMORY),
              watts and watts / 1e3, read(nvml.nvmlDeviceGetTemperature, ON_DIE), sep=",", flush=True)
        time.sleep(0.5)


main()
