package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"dynmo/src/comm/mpi"
	"dynmo/src/device/cuda"
	"dynmo/src/device/nvml"
	"dynmo/src/kernel"
	"dynmo/src/kernel/cpu"
	kernels "dynmo/src/kernel/cuda"
)

// exams returns all exams of dynmo doctor.
func exams() []exam {
	return append([]exam{
		{"dynmo", "", "", lookProgram},
		{"machine", "", "", lookMachine},
		{"mpi", "ranks as processes, on many nodes", "apt-get install openmpi-bin libopenmpi-dev, or module load openmpi; then ./build.sh build", lookMPI},
		{"blas", "kernels in C, many times faster than those in Go", "apt-get install libopenblas-dev, or module load openblas; then ./build.sh build", lookBLAS},
		{"onednn", "dense products in bfloat16 (device.cpu_precision)", "a CPU with avx512_bf16, and apt-get install libdnnl2, or from Debian 13 on libdnnl3.6, or DYNMO_DNNL_LIBRARY=/path/to/libdnnl.so.3", lookRounded},
		{"driver", "GPUs", "a machine with an NVIDIA GPU and its driver; in a job, ask for GPUs (sbatch --gpus-per-node=N)", lookDriver},
		{"cuda", "training on GPUs", "./build.sh cuda, with a CUDA toolkit of 11.8 to 13", lookSibling},
		{"kernels", "arithmetic on GPUs", "./build.sh cuda, or DYNMO_CUDA_LIBRARY=/path/to/libdynmo_cuda.so", lookKernels},
		{"nccl", "messages between GPUs without the host's memory", "apt-get install libnccl2, module load nccl, or DYNMO_NCCL_LIBRARY=/path/to/libnccl.so.2", lookNCCL},
		{"nvml", "energy, clocks, temperature and memory of GPUs in a run's records", "it comes with the NVIDIA driver", lookNVML},
		{"slurm", "jobs on a cluster, and giving nodes back", "run on a cluster's login or compute node", lookSlurm},
	}, siteExams()...)
}

// buildTags returns the build tags of this binary.
func buildTags() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return setting(info, "-tags")
}

func lookProgram() (string, error) {
	with := buildTags()
	if with == "" {
		with = "none"
	}
	return fmt.Sprintf("revision %s, %s, tags %s", revision(), runtime.Version(), with), nil
}

func lookMachine() (string, error) {
	memory, err := os.ReadFile("/proc/meminfo")
	total := "unknown"
	if err == nil {
		total = memTotal(string(memory))
	}
	return fmt.Sprintf("%s, %s/%s, %d cores, memory %s", system(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), total), nil
}

// system returns the name of the operating system.
func system() string {
	text, _ := os.ReadFile("/etc/os-release") // none on some systems
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(strings.TrimSpace(name), `"`)
		}
	}
	return "unknown system"
}

// memTotal returns the total memory in the text of /proc/meminfo, in GiB.
func memTotal(meminfo string) string {
	for line := range strings.Lines(meminfo) {
		var kib int64
		if _, err := fmt.Sscanf(line, "MemTotal: %d kB", &kib); err == nil {
			return fmt.Sprintf("%.1f GiB", float64(kib)/(1<<20))
		}
	}
	return "unknown"
}

// outputOf returns the standard output and the standard error of a program.
func outputOf(program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("no %s on PATH", program)
	}
	text, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	all := strings.TrimSpace(string(text))
	if err != nil {
		first, _, _ := strings.Cut(all, "\n")
		return "", fmt.Errorf("%s: %w: %s", path, err, first)
	}
	return all, nil
}

func lookMPI() (string, error) {
	launcher, err := outputOf("mpirun", "--version")
	launcher = mpiName(launcher)
	if library := mpiName(mpi.Library()); library == launcher {
		// mpirun starts ranks of this library
	} else if library != "" && (knownMPI(library) == "" || knownMPI(library) == knownMPI(launcher)) {
		launcher = fmt.Sprintf("%s; mpirun says %q", library, launcher)
	} else if library != "" {
		launcher = fmt.Sprintf("%s; mpirun is of %s, which may start no ranks of it", library, launcher)
	} else if err == nil {
		err = fmt.Errorf("%s, but this binary was built without the tag mpi", launcher)
	}
	if err == nil && mpi.Launched() {
		launcher += ", which started this process"
	}
	return launcher, err
}

// knownMPI returns the name of an MPI without its version, "" if dynmo does not know that MPI.
func knownMPI(name string) string {
	for _, known := range []string{"Open MPI", "MPICH"} {
		if strings.HasPrefix(name, known+" ") {
			return known
		}
	}
	return ""
}

// mpiName returns name and version of an MPI, from the text of its mpirun --version or of
// MPI_Get_library_version; the first line of other texts.
func mpiName(text string) string {
	name := mpiForm.FindStringSubmatch(text)
	switch first, _, _ := strings.Cut(text, "\n"); {
	case name == nil:
		return strings.TrimSpace(first)
	case name[1] == "":
		return "MPICH " + name[2]
	default:
		return "Open MPI " + name[2]
	}
}

// mpiForm matches "Open MPI v5.0.7, package: …", "mpirun (Open MPI) 5.0.7", "MPICH Version: 4.2.1"
// and "HYDRA build details:\n    Version: 4.2.1".
var mpiForm = regexp.MustCompile(`(?:(Open MPI)\)? v?|(?:MPICH |HYDRA build details:\s*)Version:\s*)(\d\S*?)(?:,|\s|$)`)

func lookBLAS() (string, error) {
	if !cpu.Built {
		return "", errors.New("this binary was built without the tag blas: kernels are those in Go")
	}
	k, err := cpu.New(1)
	if err != nil {
		return "", err
	}
	defer k.Close()
	if advice := kernel.Advice(k.Identity()); advice != "" {
		return k.Identity() + "; " + advice, nil
	}
	return k.Identity(), nil
}

func lookRounded() (string, error) {
	k, err := cpu.NewRounded(1, false)
	if err != nil {
		return "", err
	}
	defer k.Close()
	_, library, _ := strings.Cut(k.Identity(), " bf16 ")
	return library, nil
}

func lookDriver() (string, error) {
	driver, err := cuda.Probe()
	if err != nil {
		return "", err
	}
	lines := []string{driver.String()}
	for ordinal, name := range driver.GPUs {
		lines = append(lines, fmt.Sprintf("GPU %d: %s", ordinal, name))
	}
	return strings.Join(lines, "\n"), nil
}

func lookSibling() (string, error) {
	if cuda.Built {
		return "this binary", nil
	}
	return sibling()
}

func lookKernels() (string, error) {
	path := kernels.Library()
	built, err := cuda.Kernels(path)
	return path + ": " + built, err
}

func lookNCCL() (string, error) {
	version, err := cuda.NCCL(os.Getenv("DYNMO_NCCL_LIBRARY"))
	if err != nil {
		return "", err
	}
	major := 10000
	if version < major { // versions before 2.9 have another format
		major = 1000
	}
	return fmt.Sprintf("%d.%d.%d", version/major, version%major/100, version%100), nil
}

func lookNVML() (string, error) {
	library, err := nvml.Open()
	if err != nil {
		return "", err
	}
	defer library.Close()
	gpus, err := library.Inventory()
	if err != nil {
		return "", err
	}
	lines := []string{fmt.Sprintf("%d GPUs", len(gpus))}
	for _, g := range gpus {
		if g.Fault != "" {
			return "", fmt.Errorf("GPU %d does not answer: %s", g.Index, g.Fault)
		}
		held := ""
		if len(g.Throttle) > 0 {
			held = ", clock held back: " + strings.Join(g.Throttle, ", ")
		}
		lines = append(lines, fmt.Sprintf("GPU %d: %s, %s, %.1f of %.1f GiB used, %d of %d MHz, %.0f of %.0f W, %d °C, %d ECC errors%s",
			g.Index, g.Name, g.UUID, float64(g.UsedBytes)/(1<<30), float64(g.MemoryBytes)/(1<<30),
			g.ClockMHz, g.MaxMHz, g.PowerWatts, g.LimitWatts, g.Celsius, g.ECCErrors, held))
	}
	return strings.Join(lines, "\n"), nil
}

// slurmOutput returns the output of one of Slurm's programs. Without a slurm.conf they all fail, after
// they have looked for one in the DNS.
func slurmOutput(program string, args ...string) (string, error) {
	text, err := outputOf(program, args...)
	if err != nil && strings.Contains(err.Error(), "resolve_ctls_from_dns_srv") {
		return "", fmt.Errorf("%s finds no slurm.conf of a cluster", program)
	}
	return text, err
}

func lookSlurm() (string, error) {
	version, err := slurmOutput("scontrol", "--version")
	if err != nil {
		return "", err
	}
	job := os.Getenv("SLURM_JOB_ID")
	if job == "" {
		return version + ", outside of a job", nil
	}
	return fmt.Sprintf("%s, job %s, %s tasks on %s nodes", version, job, os.Getenv("SLURM_NTASKS"), os.Getenv("SLURM_JOB_NUM_NODES")), nil
}
