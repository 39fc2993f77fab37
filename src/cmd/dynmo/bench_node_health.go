package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
	"dynmo/src/device/nvml"
	"dynmo/src/nodebench/verdict"
	"dynmo/src/record"
)

// gpuWatch polls the state of this node's GPUs while they are measured.
type gpuWatch struct {
	library *nvml.Library
	absent  error
	stop    chan struct{}
	done    sync.WaitGroup
	most    []nvml.GPU // highest power with its clocks, highest temperature, all throttling reasons
}

// watchEvery is the time between two polls. It is shorter than every measured part.
const watchEvery = 50 * time.Millisecond

// watchGPUs starts to poll.
func (r *recorder) watchGPUs() *gpuWatch {
	w := &gpuWatch{stop: make(chan struct{})}
	if w.library, w.absent = nvml.Open(); w.absent != nil {
		return w
	}
	if w.most, w.absent = w.library.Inventory(); w.absent != nil {
		w.library.Close()
		return w
	}
	w.done.Go(func() {
		for {
			select {
			case <-w.stop:
				return
			case <-time.After(watchEvery):
			}
			now, err := w.library.Inventory()
			if err != nil {
				continue // Health reports the error
			}
			for i := range min(len(now), len(w.most)) {
				w.most[i].Fault = cmp.Or(w.most[i].Fault, now[i].Fault)
			}
			for i := range min(len(now), len(w.most)) {
				m := &w.most[i]
				if now[i].PowerWatts > m.PowerWatts { // clocks count at the highest power only, because an idle GPU's clocks vary
					m.PowerWatts, m.ClockMHz, m.MemoryMHz = now[i].PowerWatts, now[i].ClockMHz, now[i].MemoryMHz
				}
				m.Celsius = max(m.Celsius, now[i].Celsius)
				for _, reason := range now[i].Throttle {
					if !strings.Contains(strings.Join(m.Throttle, ", "), reason) {
						m.Throttle = append(m.Throttle, reason)
					}
				}
			}
		}
	})
	return w
}

// report ends a watch, and adds rows for the reports of the GPUs, of the PCI bus and of the kernel.
func (r *recorder) report(w *gpuWatch) {
	defer r.reportXIDs()
	pci := nvidiaOnPCI("/sys")
	if w.absent != nil {
		noDriver := !driverLoaded() && len(pci) > 0
		if errors.Is(w.absent, nvml.ErrAbsent) && !noDriver {
			r.unavailable("gpus", "", "nvml", w.absent)
			return
		}
		r.begin("gpus", "", "nvml")
		r.add(verdict.Row{Node: r.node, Device: "gpus", Check: "nvml", Status: verdict.Faulty,
			Note: fmt.Sprintf("the driver does not answer, with %d GPUs on the PCI bus: %v", len(pci), w.absent)})
		return
	}
	close(w.stop)
	w.done.Wait()
	defer w.library.Close()
	r.begin("gpus", "", "nvml")
	health, err := w.library.Health()
	if err == nil && len(health) != len(w.most) {
		err = fmt.Errorf("the driver listed %d GPUs, and then %d", len(w.most), len(health))
	}
	if err != nil {
		r.broken("gpus", "", "nvml", fmt.Errorf("a GPU was lost: %w", err))
		return
	}
	r.add(verdict.Row{Node: r.node, Device: "node", Model: record.Here(false).CPU, Check: "gpus", Value: float64(len(health)), Unit: "GPUs", Status: verdict.Measured})
	for i, g := range w.most {
		row := func(check string, value float64, unit string) verdict.Row {
			x := verdict.Row{Node: r.node, Device: fmt.Sprintf("gpu%d", g.Index), Model: g.Name, Check: check, Value: value, Unit: unit, Status: verdict.Measured}
			if value == 0 {
				x.Status, x.Note = verdict.NotAvailable, "the GPU does not tell"
			}
			return x
		}
		if g.Fault == "" && health[i].Fault == "" {
			r.add(row("clock", float64(g.ClockMHz), "MHz"), row("memory_clock", float64(g.MemoryMHz), "MHz"),
				row("power", g.PowerWatts, "W"), row("temperature", float64(g.Celsius), "°C"))
		}
		r.add(verdict.HealthRows(r.node, g, health[i])...)
	}
	if driverLoaded() && !hasOwnDriverFolder() {
		r.add(verdict.PCIRows(r.node, pci, w.most)...)
	}
}

// driverFolder is where NVIDIA's driver has its state.
const driverFolder = "/proc/driver/nvidia"

func driverLoaded() bool {
	_, err := os.Stat(driverFolder)
	return err == nil
}

// hasOwnDriverFolder reports whether a container was given a folder of the driver's state with some of the
// GPUs. The PCI bus then shows GPUs that are not for the container.
func hasOwnDriverFolder() bool {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	return strings.Contains(string(mounts), " "+driverFolder+" ")
}

// nvidiaOnPCI returns the addresses of NVIDIA's GPUs on the PCI bus. sys is the folder of the kernel's
// devices, /sys. GPUs that the host passes on to virtual machines are not its own.
func nvidiaOnPCI(sys string) []string {
	var list []string
	devices, _ := filepath.Glob(filepath.Join(sys, "bus/pci/devices/*"))
	for _, d := range devices {
		vendor, _ := os.ReadFile(filepath.Join(d, "vendor"))
		class, _ := os.ReadFile(filepath.Join(d, "class"))
		driver, _ := os.Readlink(filepath.Join(d, "driver"))
		isGPU := strings.TrimSpace(string(vendor)) == "0x10de" && strings.HasPrefix(string(class), "0x03") // a display controller
		if isGPU && filepath.Base(driver) != "vfio-pci" {
			list = append(list, filepath.Base(d))
		}
	}
	return list
}

// reportXIDs adds a row for the GPU errors in the kernel's log.
func (r *recorder) reportXIDs() {
	if _, err := os.Stat("/proc/driver/nvidia"); err != nil {
		return // without a driver there are no messages
	}
	log, err := kernelLog()
	if err != nil {
		r.unavailable("gpus", "", "xid", err)
		return
	}
	r.add(verdict.XIDRows(r.node, log, float64(device.Monotonic())*1e-9)...)
}

// kernelLog returns the records of /dev/kmsg, which only root may read.
func kernelLog() (string, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("/dev/kmsg: %w", err)
	}
	defer unix.Close(fd)
	var log strings.Builder
	buffer := make([]byte, 8192) // one record at most
	for {
		n, err := unix.Read(fd, buffer)
		switch err {
		case nil:
			log.Write(buffer[:n])
		case unix.EPIPE: // a record was overwritten before it was read
		case unix.EAGAIN:
			return log.String(), nil
		default:
			return log.String(), fmt.Errorf("/dev/kmsg: %w", err)
		}
	}
}
