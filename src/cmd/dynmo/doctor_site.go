package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"dynmo/src/comm/mpi"
)

// siteExams check the parts that a site's administrator sets up.
func siteExams() []exam {
	return []exam{
		{"pmix", "ranks that srun starts", "a Slurm built with PMIx; without one MPI=mpirun sbatch jobs/train.sbatch, or with MPICH MPI=pmi2", lookPMIx},
		{"binding", "ranks that keep their cores and memory", "in a job: srun --cpu-bind=cores, or mpirun --bind-to core", lookBinding},
		{"limits", "memory that networks and GPUs reach, and files of many ranks", "raise the limits named, in slurmd's unit and in limits.conf", lookLimits},
		{"shm", "messages between the ranks of a node", "a larger /dev/shm (mount -o remount,size=50% /dev/shm; docker --shm-size; apptainer shares the host's)", lookShared},
		{"hugepages", "weights in few pages: faster products and sampling", "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled", lookHugePages},
		{"fabric", "NVLink between all GPUs of a node with NVSwitches", "apt-get install nvidia-fabricmanager-VERSION of the driver's version, then systemctl start nvidia-fabricmanager", lookFabric},
	}
}

// lookPMIx returns the kinds of PMI that srun supports, and the version of the PMIx library.
func lookPMIx() (string, error) {
	text, err := slurmOutput("srun", "--mpi=list")
	if err != nil {
		return "", err
	}
	kinds, err := pmixOf(text)
	library, _, _ := strings.Cut(mpi.PMIx(), ",")
	library, _, _ = strings.Cut(library, " (") // "OpenPMIx 5.0.7 (PMIx Standard: 5.1, …", "OpenPMIx 4.2.2, repo rev: …"
	if library != "" && err == nil {
		kinds += "; " + library
	}
	return kinds, err
}

// pmixOf parses the output of srun --mpi=list.
func pmixOf(text string) (string, error) {
	_, list, _ := strings.Cut(text, "are")
	var flavours []string
	for _, word := range strings.Fields(strings.NewReplacer(":", " ", ",", " ").Replace(list)) {
		switch {
		case word == "specific", word == "pmix", word == "plugin", word == "versions", word == "available":
		case strings.HasPrefix(word, "p"), word == "cray_shasta":
			flavours = append(flavours, word)
		}
	}
	all := strings.Join(flavours, ", ")
	if !strings.Contains(text, "pmix") {
		return "", fmt.Errorf("srun has no pmix: %s", all)
	}
	if all == "" {
		all = "pmix"
	}
	return all, nil
}

// lookBinding returns the cores of this process and the NUMA nodes of the machine.
func lookBinding() (string, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return "", err
	}
	nodes, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*")
	memory := "the system tells no NUMA nodes"
	if len(nodes) > 0 {
		memory = fmt.Sprintf("NUMA nodes: %d", len(nodes))
	}
	return fmt.Sprintf("this process may use %d processors; %s", set.Count(), memory), nil
}

const (
	// leastFiles is the least limit of open files, for a launcher of some hundred ranks on a node.
	leastFiles = 1024
	// leastLocked is the least limit of locked memory, for the buffers of InfiniBand.
	leastLocked = 1 << 30
	// leastShared is the least size of /dev/shm, for the messages of a few ranks.
	leastShared = 256 << 20
)

func lookLimits() (string, error) {
	var locked, files unix.Rlimit
	if err := errors.Join(unix.Getrlimit(unix.RLIMIT_MEMLOCK, &locked), unix.Getrlimit(unix.RLIMIT_NOFILE, &files)); err != nil {
		return "", err
	}
	return judgeLimits(locked.Cur, files.Cur)
}

// judgeLimits describes the limits of locked memory, in bytes, and of open files. The error names the limits
// that are too low, and how to raise them.
func judgeLimits(locked, files uint64) (string, error) {
	size := "unlimited"
	if locked != unix.RLIM_INFINITY {
		size = fmt.Sprintf("%d KiB", locked>>10)
	}
	var low []string
	if locked < leastLocked {
		low = append(low, fmt.Sprintf("locked memory: %s, want at least %d KiB (ulimit -l unlimited, LimitMEMLOCK=infinity)", size, leastLocked>>10))
	}
	if files < leastFiles {
		low = append(low, fmt.Sprintf("open files: %d, want at least %d (ulimit -n 4096, LimitNOFILE=4096)", files, leastFiles))
	}
	if len(low) > 0 {
		return "", errors.New(strings.Join(low, "; "))
	}
	return fmt.Sprintf("locked memory (ulimit -l): %s; open files (ulimit -n): %d", size, files), nil
}

func lookShared() (string, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &fs); err != nil {
		return "", fmt.Errorf("/dev/shm: %w", err)
	}
	size, free := int64(fs.Blocks)*fs.Bsize, int64(fs.Bavail)*fs.Bsize
	text := fmt.Sprintf("/dev/shm: %.1f of %.1f GiB free", float64(free)/(1<<30), float64(size)/(1<<30))
	if free < leastShared {
		return "", fmt.Errorf("%s: want at least %d MiB", text, leastShared>>20)
	}
	return text, nil
}

func lookHugePages() (string, error) {
	text, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil {
		return "", fmt.Errorf("transparent huge pages: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), "[")
	mode, _, _ := strings.Cut(rest, "]")
	if mode == "never" {
		return "", errors.New("transparent huge pages: never")
	}
	return "transparent huge pages: " + mode, nil
}

// lookFabric reports whether the fabric manager runs, if the machine has NVSwitches.
func lookFabric() (string, error) {
	switches, _ := filepath.Glob("/dev/nvidia-nvswitch[0-9]*")
	if len(switches) == 0 {
		return "not needed: this machine has no NVSwitch that the driver shows", nil
	}
	if isRunning("nv-fabricmanager") {
		return fmt.Sprintf("fabric manager runs, %d NVSwitches", len(switches)), nil
	}
	return "", fmt.Errorf("%d NVSwitches, and no fabric manager runs: CUDA does not start", len(switches))
}

// isRunning reports whether a process of a program runs on this machine.
func isRunning(program string) bool {
	const most = 15 // characters of a name that Linux keeps
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		if comm, err := os.ReadFile(name); err == nil && string(comm) == program[:min(most, len(program))]+"\n" {
			return true
		}
	}
	return false
}
