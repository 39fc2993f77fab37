package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/config"
)

// resumeCommand returns the command line that resumes a stopped run. again are the words that
// started its training, and dir is its directory. ancestors are the command lines of the processes that
// started this one, nearest first: the options of mpirun are taken from there.
func resumeCommand(again []string, dir string, c config.Config, getenv func(string) string, ancestors [][]string) string {
	ranks := fmt.Sprint(c.Parallel.Stages * c.Parallel.Replicas)
	var words []string
	switch {
	case getenv("OMPI_COMM_WORLD_SIZE") != "" || getenv("PMI_RANK") != "" && getenv("SLURM_PROCID") == "": // Open MPI or MPICH
		if words = launcherWords(ancestors, again[0]); words == nil {
			words = []string{"mpirun", "-n", ranks}
		}
	case getenv("SLURM_PROCID") != "" && getenv("PMIX_RANK") != "":
		words = []string{"srun", "--mpi=pmix", "-n", ranks}
	case getenv("SLURM_PROCID") != "" && getenv("PMI_RANK") != "":
		words = []string{"srun", "--mpi=pmi2", "-n", ranks}
	}
	words = append(append(words, again...), "--run-dir", dir, "--resume")
	return commandLine(words)
}

// launcherWords returns the words of mpirun before the program that it started; nil if no ancestor is
// an mpirun with the program in its command line.
func launcherWords(ancestors [][]string, program string) []string {
	for _, words := range ancestors {
		name, _, _ := strings.Cut(filepath.Base(words[0]), ".") // mpiexec.hydra
		switch name {
		case "mpirun", "mpiexec", "orterun":
		case "prterun": // started by the mpirun of Open MPI 5, with settings that the program alone lacks
			words = slices.Concat([]string{"mpirun"}, words[1:])
		default:
			continue
		}
		at := slices.Index(words, program)
		if at < 0 || at+1 == len(words) || words[at+1] != "train" {
			return nil
		}
		return words[:at]
	}
	return nil
}

// mostAncestors is the largest number of processes between mpirun and a rank: daemons and shells.
const mostAncestors = 8

// ancestorCommands returns the command lines of the processes that started this one, nearest first. It
// ends where the system does not tell.
func ancestorCommands() (list [][]string) {
	for pid := os.Getppid(); pid > 1 && len(list) < mostAncestors; {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || len(line) == 0 {
			return list
		}
		list = append(list, strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"))
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return list
		}
		// The name of the program in parentheses may contain anything; state and parent follow it.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 {
			return list
		}
		if pid, err = strconv.Atoi(string(fields[1])); err != nil {
			return list
		}
	}
	return list
}
