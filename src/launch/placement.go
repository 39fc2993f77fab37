package launch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"dynmo/src/comm"
	"dynmo/src/record"
)

// placement describes the hosts and cores of the ranks: "0-1 on node1 (cores 0-3), 2-3 on node2
// (cores 0; 1)". If the ranks of a host differ, each rank's cores are given. With GPUs each kind of
// host has a line.
func placement(peer func(rank int) comm.Peer, all []arrival, placed []binding) []string {
	var hosts []string
	ranks := make(map[string][]int)
	for rank := range all {
		host := peer(rank).Host
		if ranks[host] == nil {
			hosts = append(hosts, host)
		}
		ranks[host] = append(ranks[host], rank)
	}
	type kind struct {
		hosts []string
		ranks []int
		cores string
	}
	var kinds []*kind
	alike, gpus := make(map[string]*kind), all[0].Locality != nil
	for _, host := range hosts {
		cores := make([]string, len(ranks[host]))
		for j, rank := range ranks[host] {
			if cores[j] = ranges(all[rank].Cores); gpus {
				cores[j] = placed[rank].String()
			}
		}
		if len(slices.Compact(slices.Clone(cores))) == 1 {
			cores = cores[:1]
		}
		text := strings.Join(cores, "; ")
		k := alike[text]
		if k == nil || !gpus {
			k = &kind{cores: text}
			alike[text], kinds = k, append(kinds, k)
		}
		k.hosts, k.ranks = append(k.hosts, host), append(k.ranks, ranks[host]...)
	}
	lines := make([]string, len(kinds))
	for i, k := range kinds {
		on := k.hosts[0]
		if n := len(k.hosts); n > 1 {
			on = fmt.Sprintf("%d hosts, %s to %s", n, on, k.hosts[n-1])
		}
		slices.Sort(k.ranks)
		lines[i] = fmt.Sprintf("%s on %s (cores %s)", ranges(k.ranks), on, k.cores)
	}
	if !gpus {
		return []string{strings.Join(lines, ", ")}
	}
	return lines
}

// ranges writes ascending numbers as ranges; "unknown" for no numbers.
func ranges(list []int) string { return cmp.Or(record.Ranges(list), "unknown") }
