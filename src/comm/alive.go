package comm

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// visible reports by rank which peers can be watched: peers on this host whose process can be seen.
// Ranks in different containers may share a host name and still not see each other. Taking such a
// rank for dead would end a healthy run.
func visible(peers []Peer, host string) []bool {
	watched := make([]bool, len(peers))
	for rank, p := range peers {
		watched[rank] = p.Host == host && alive(p.PID)
	}
	return watched
}

// state is whether a process of this host runs.
type state int

const (
	running state = iota
	halted        // by a signal or a debugger
	gone
)

// alive reports whether a process of this host exists, running or halted. It does not ask the system
// about this process, since thousands of ranks may be goroutines of it.
func alive(pid int) bool { return pid == os.Getpid() || stateOf(pid) != gone }

// stateOf returns the state of a process. A zombie is gone: the process has ended, although its
// parent has not asked for its status yet.
func stateOf(pid int) state {
	if unix.Kill(pid, 0) == unix.ESRCH {
		return gone
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return running // no /proc here, or it has just ended: the next look finds that
	}
	switch stateCode(stat) {
	case 'Z', 'X':
		return gone
	case 'T', 't':
		return halted
	}
	return running
}

// Halted reports whether stat, the text of /proc/PID/stat, shows a process that is stopped by a signal
// or a debugger.
func Halted(stat []byte) bool { return stateCode(stat) == 'T' || stateCode(stat) == 't' }

// stateCode returns the letter of the state in the text of /proc/PID/stat, 0 if there is none. The
// letter follows the command, which stands in brackets and may have any character.
func stateCode(stat []byte) byte {
	if rest := bytes.TrimLeft(stat[bytes.LastIndexByte(stat, ')')+1:], " "); len(rest) > 0 {
		return rest[0]
	}
	return 0
}
