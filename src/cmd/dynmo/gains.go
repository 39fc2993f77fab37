package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/lab/study"
	"dynmo/src/lab/verdict"
	"dynmo/src/plan/search"
	"dynmo/src/record"
	"dynmo/src/sim"
)

// mostSearched is the longest time that the end of a run waits for the search of better settings: ranks and a
// reservation wait with it.
const mostSearched = 5 * time.Second

// wouldGain says what would make the steps of a finished run shorter, if moving layers did not: other settings
// with the predicted factor, or that nothing would. It returns "" if that is not asked, or not known.
func (w *watcher) wouldGain(s verdict.Summary) string {
	if s.Status != verdict.Finished || s.Worth.Doubt != "" || s.Worth.Moved && s.Worth.Speedup > 1 && !s.Worth.IsNoise() {
		return ""
	}
	last, ok := w.tally.LastCosts()
	if !ok {
		return ""
	}
	found := make(chan string, 1)
	go func() {
		gains, err := study.Gains(last, onCluster(w.settings))
		if err == nil {
			found <- gainsText(gains)
		}
		close(found)
	}()
	more := ""
	if w.dir != "" {
		more = commandLine([]string{"dynmo", "plan", filepath.Join(w.dir, record.SettingsFile), "--costs", filepath.Join(w.dir, record.CostsFile)})
	}
	select {
	case text := <-found:
		if text != "" && more != "" {
			text += ". `" + more + "` shows more"
		}
		return text
	case <-time.After(mostSearched):
		if more == "" {
			return ""
		}
		return "`" + more + "` shows what would gain"
	}
}

// gainsText describes settings that would make steps shorter.
func gainsText(gains []study.Gain) string {
	if len(gains) == 0 {
		return "nothing that was tried would make a step 1 % faster: finer layers, other schedules, other stages x replicas"
	}
	var list []string
	for _, g := range gains {
		text := fmt.Sprintf("--set %s: %.2fx", strings.Join(g.Sets, " --set "), g.Factor)
		if g.MadeUp {
			text += " (estimated, profile it first)"
		}
		list = append(list, text)
	}
	return "predicted to gain: " + strings.Join(list, "; ")
}

// onCluster returns the options of a study of settings, with the network of [comm] between all ranks.
func onCluster(c config.Config) study.Options {
	o := study.Options{Config: c, Fixed: search.Fixed(c), Network: sim.Uniform(c.Comm.LatencySeconds, c.Comm.BandwidthBytes)}
	o.Network.Delay = comm.Delay{Most: c.Comm.DelayMost, Seed: c.Run.Seed}
	return o
}
