package comm

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// visible reports by rank which peers can be watched: those on this host whose
// process can be seen. Ranks in containers of their own may share a host name and
// still not see each other; taking them for dead would end a healthy run.
func visible(peers []Peer, host string) []bool {
	watched := make([]bool, len(peers))
	for rank, p := range peers {
		watched[rank] = p.Host == host && alive(p.PID)
	}
	return watched
}

// alive reports whether a process of this host runs. A zombie does not: it
// has ended, and only its parent has not asked for its status yet.
func alive(pid int) bool {
	if unix.Kill(pid, 0) == unix.ESRCH {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // no /proc here, or it has just ended: the next look finds that
	}
	// The state follows the command, which may hold any character, in brackets.
	state := stat[bytes.LastIndexByte(stat, ')')+1:]
	return !bytes.HasPrefix(state, []byte(" Z")) && !bytes.HasPrefix(state, []byte(" X"))
}
