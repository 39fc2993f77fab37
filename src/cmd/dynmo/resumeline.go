package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/config"
	"dynmo/src/record"
)

// rootVariables let root start Open MPI's mpirun. They may have been set for that one command.
var rootVariables = []string{"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"}

// resumeCommand returns the command line that resumes a run, in any folder. again are the words that
// started its training: program, "train", CONFIG and so on. at is this process's folder, and dir is the
// run's directory. ancestors are the processes that started this one, nearest first: the options of
// mpirun and its folder are taken from there.
func resumeCommand(again []string, at, dir string, c config.Config, getenv func(string) string, ancestors []ancestor) string {
	ranks := fmt.Sprint(c.Parallel.Stages * c.Parallel.Replicas)
	var words []string
	switch {
	case getenv("OMPI_COMM_WORLD_SIZE") != "" || getenv("PMI_RANK") != "" && getenv("SLURM_PROCID") == "": // Open MPI or MPICH
		var from string
		if words, from = launcherWords(ancestors, again[0]); words == nil {
			words = []string{"mpirun", "-n", ranks}
		}
		at = cmp.Or(from, at)
		var set []string
		for _, name := range rootVariables {
			if value := getenv(name); value != "" {
				set = append(set, name+"="+value)
			}
		}
		if len(set) > 0 {
			words = slices.Concat([]string{"env"}, set, words)
		}
	case getenv("SLURM_PROCID") != "" && getenv("PMIX_RANK") != "":
		words = []string{"srun", "--mpi=pmix", "-n", ranks}
	case getenv("SLURM_PROCID") != "" && getenv("PMI_RANK") != "":
		words = []string{"srun", "--mpi=pmi2", "-n", ranks}
	}
	again = slices.Clone(again)
	if info, err := os.Stat(again[2]); err != nil || !info.Mode().IsRegular() { // standard input, or a pipe
		again[2] = filepath.Join(dir, record.SettingsFile)
	}
	words = append(append(words, again...), "--run-dir", dir, "--resume")
	if at == "" {
		return commandLine(words)
	}
	return commandLine([]string{"cd", at}) + " && " + commandLine(words)
}

// launcherWords returns the words of mpirun before the program that it started, and mpirun's folder. It
// returns nil if no ancestor is an mpirun with the program in its command line.
func launcherWords(ancestors []ancestor, program string) (words []string, at string) {
	for _, a := range ancestors {
		words := a.words
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
			return nil, ""
		}
		return words[:at], a.at
	}
	return nil, ""
}

// ancestor is a process that started this one, directly or not.
type ancestor struct {
	words []string // its command line
	at    string   // its folder; "" if the system does not tell
}

// mostAncestors is the largest number of processes between mpirun and a rank: daemons and shells.
const mostAncestors = 8

// findAncestors returns the processes that started this one, nearest first. It ends where the system
// does not tell.
func findAncestors() (list []ancestor) {
	for pid := os.Getppid(); pid > 1 && len(list) < mostAncestors; {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || len(line) == 0 {
			return list
		}
		at, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		list = append(list, ancestor{strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"), at})
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
