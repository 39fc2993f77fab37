package launch

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/comm/nccl"
	"dynmo/src/config"
	"dynmo/src/device"
	cpudevice "dynmo/src/device/cpu"
	cudadevice "dynmo/src/device/cuda"
	"dynmo/src/kernel"
	"dynmo/src/kernel/cpu"
	"dynmo/src/kernel/cuda"
	"dynmo/src/kernel/null"
	"dynmo/src/kernel/ref"
	"dynmo/src/plan/search"
	"dynmo/src/tensor"
)

// nullRate is the assumed speed of a rank with kernel/null: the order of magnitude of one core, in
// floating-point operations per second.
const nullRate = 5e10

// machine is the device of a rank, with its kernels and clock.
type machine struct {
	kernels string        // backend, instruction-set path and libraries: results depend on them to the bit
	gpu     string        // UUID of the GPU; "": none
	model   string        // name of the GPU
	bus     string        // PCI address of the GPU
	bounds  []bound       // of the GPU's memory
	clock   *device.Clock // the device's clock; nil: the device accepts any clock
	open    func(*device.Clock) (device.Device, kernel.Backend)
}

// newMachine returns the machine that the settings ask for. The calling goroutine must be locked to
// its OS thread, and be the machine's only user.
func newMachine(c config.Config) (machine, error) {
	if c.Device.Kind == "cuda" {
		return newGPU(c)
	}
	kernels := func(k func(*device.Clock) kernel.Backend) machine {
		return machine{kernels: k(nil).Identity(), open: func(clock *device.Clock) (device.Device, kernel.Backend) {
			return cpudevice.New(clock), k(clock)
		}}
	}
	switch kind := c.Device.Kernel; {
	case kind == "null":
		return kernels(func(clock *device.Clock) kernel.Backend { return null.New(clock, null.AtRate(nullRate)) }), nil
	case kind == "ref", kind == "auto" && !cpu.Built:
		reference := ref.New
		if c.Device.CPUPrecision != "f32" {
			reference = ref.NewRounded
		}
		return kernels(func(*device.Clock) kernel.Backend { return reference(tensor.F32) }), nil
	}
	backend, err := newCPU(c.Device)
	if err != nil {
		return machine{}, err
	}
	return kernels(func(*device.Clock) kernel.Backend { return backend }), nil
}

// newCPU returns the kernels of a CPU.
func newCPU(d config.Device) (kernel.Backend, error) {
	if d.CPUPrecision == "f32" {
		return cpu.New(d.Threads)
	}
	k, err := cpu.NewRounded(d.Threads, d.CPUPrecision == "bf16-emulated")
	if err != nil {
		return nil, fmt.Errorf("device.cpu_precision = %q: %w; \"bf16-emulated\" rounds alike, no faster than \"f32\"", d.CPUPrecision, err)
	}
	return k, nil
}

// newGPU returns the GPU whose number is this rank's number on its host.
func newGPU(c config.Config) (machine, error) {
	visible, err := cudadevice.Visible()
	if err != nil {
		return machine{}, err
	}
	clock := device.NewWall()
	dev, err := cudadevice.New(clock, cudadevice.Pick(cudadevice.LocalRank(), visible))
	if err != nil {
		return machine{}, err
	}
	backend, err := cuda.New(search.Precision(c))
	if err != nil {
		return machine{}, err
	}
	free, _, err := dev.Memory()
	if err != nil {
		return machine{}, err
	}
	gpu := dev.Describe()
	return machine{
		kernels: backend.Identity(), gpu: gpu.UUID, model: gpu.Name, bus: gpu.Bus, bounds: []bound{{gpu.UUID, free}}, clock: clock,
		open: func(*device.Clock) (device.Device, kernel.Backend) { return dev, backend },
	}, nil
}

const (
	// sgemmSide is the side of the product that sgemmRate measures. OpenBLAS is as fast at this size as at
	// larger ones, up to a few per cent.
	sgemmSide = 512
	// sgemmSeconds bounds the rounds of sgemmRate.
	sgemmSeconds = 0.03
)

// sgemmRate returns the floating-point operations per second of a float32 product of the C kernels, the best
// of some rounds; 0 for other kernels, and if they round products. One thread is timed by its CPU time, so that ranks may share cores.
// The measurement takes its own memory and stops the clock of the run, so nothing of the run depends on it.
func sgemmRate(k kernel.Backend, run *device.Clock, d config.Device) float64 {
	if k.Name() != "cpu" || d.CPUPrecision != "f32" {
		return 0
	}
	run.Pause()
	defer run.Resume()
	clock := device.NewWall()
	if d.Threads == 1 {
		clock = device.NewVirtual()
	}
	dev := cpudevice.New(clock)
	defer dev.Close()
	stream := dev.NewStream()
	defer stream.Close()
	const n = sgemmSide
	var mem [3]tensor.Mem
	for i := range mem {
		var err error
		if mem[i], err = dev.Alloc(4 * n * n); err != nil {
			return 0
		}
		defer dev.Free(mem[i])
		values := tensor.Of[float32](mem[i])
		for j := range values {
			values[j] = 1
		}
	}
	best := 0.0
	for began := clock.Now(); clock.Now()-began < sgemmSeconds; {
		before := clock.Now()
		k.MatmulForward(stream, mem[0], mem[1], mem[2], tensor.Mem{}, n, n, n)
		best = max(best, 2*n*n*n/(clock.Now()-before))
	}
	return best
}

func newClock(kind string) *device.Clock {
	if kind == "virtual" {
		return device.NewVirtual()
	}
	return device.NewWall()
}

// gpuRanks returns the ranks of every GPU, and whether ranks share a GPU. Sharing is an error
// unless the settings allow it.
func gpuRanks(c config.Config, world *comm.Group, all []arrival) (ranks map[string][]int, shared bool, err error) {
	ranks = make(map[string][]int)
	for rank, a := range all {
		if a.GPU == "" {
			continue
		}
		ranks[a.GPU] = append(ranks[a.GPU], rank)
		if list := ranks[a.GPU]; len(list) > 1 {
			if shared = true; !c.Device.Share {
				return nil, true, comm.Input(fmt.Errorf("ranks %d and %d (host %s) have one GPU, %s: start as many ranks on a host as it has GPUs, "+
					"show every rank its own, or set device.share = true", list[0], rank, world.Peer(rank).Host, a.GPU))
			}
		}
	}
	return ranks, shared, nil
}

// transportKind is how the memory of GPUs travels between ranks.
type transportKind int

const (
	noTransport   transportKind = iota // there are no GPUs, or one rank
	hostTransport                      // through host memory and MPI
	ncclTransport                      // by NCCL, which needs a GPU for every rank
)

// transportOf returns the kind of transport for a run. shared reports whether ranks share GPUs or a
// process.
func transportOf(c config.Config, ranks int, shared bool) transportKind {
	switch {
	case c.Device.Kind != "cuda", ranks == 1:
		return noTransport
	case c.Comm.Transport == "host", c.Comm.Transport == "auto" && shared:
		return hostTransport
	}
	return ncclTransport
}

// deviceTransport returns the name of the transport of GPUs' memory between ranks, and a function
// that makes it. Both are zero if kind is noTransport. A host has up to onHost ranks. The error
// reports a missing library.
func deviceTransport(c config.Config, kind transportKind, dev device.Device, stream device.Stream, onHost int) (string, func(comm.Transport) (comm.DeviceTransport, error), error) {
	switch kind {
	case noTransport:
		return "", nil, nil
	case hostTransport:
		return "host memory", comm.Staged(dev, stream), nil
	}
	version, err := nccl.Version()
	if err != nil {
		err = fmt.Errorf("%w (DYNMO_NCCL_LIBRARY names the file; comm.transport = \"host\" does without)", err)
	}
	name := "NCCL " + version
	if err == nil && nccl.LimitsCTAs() {
		name += fmt.Sprintf(" (%v)", nccl.NeedsOf(c.Parallel.Stages, c.Parallel.Replicas, onHost, c.Comm.NcclCTAs))
	} else if err == nil {
		name += ", which is too old for comm.nccl_ctas,"
	}
	return name, func(t comm.Transport) (comm.DeviceTransport, error) {
		return nccl.New(t, dev, stream, c.Comm.NcclCTAs)
	}, err
}
