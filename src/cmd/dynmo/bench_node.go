package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"dynmo/src/comm/mpi"
	"dynmo/src/device"
	"dynmo/src/device/cuda"
	"dynmo/src/files"
	"dynmo/src/nodebench/verdict"
)

// nodeFlags are the flags of bench node.
type nodeFlags struct {
	bench *benchFlags
	name  string // node or pairs

	quick      bool
	small      bool
	seconds    float64
	limit      time.Duration
	burn       time.Duration
	folder     string
	reference  string
	write      target // of the reference that is measured
	records    string
	judge      []string // folders of records to judge
	nodes      string
	prometheus target
	page       target
	force      bool
	compare    string
	topology   string

	measured time.Time // when the measurement began; for records, the time of the last one
	bounds   *verdict.Reference
	before   []verdict.Finding // of the file to compare with
	clock    *device.Clock     // of the checks on the host
}

// benchNode returns the command that measures nodes and names the slow ones.
func benchNode(flags *benchFlags) *cobra.Command {
	n := &nodeFlags{bench: flags, seconds: 2, limit: time.Minute, folder: os.TempDir()}
	c := &cobra.Command{
		Use:   "node",
		Short: "Measure nodes and GPUs, and name those that are slow or faulty",
		Long: `Measure nodes and GPUs, and name those that are slow or faulty. The status and the last
line say:

  0  healthy, or measured with nothing to compare with
  1  slow or faulty
  2  the command line is wrong; nothing was measured
  3  not measured: no rate, and no device reports a fault; or an output could not be written
  4  cannot judge: others used a host, or no bound of the reference fits

Start one process a GPU, or one a node without GPUs (srun or mpirun dynmo bench node); alone
it measures this machine. The first process of a node measures the host: a float32 product
(gemm_f32), STREAM's triad, a sparse product (csr_f32), and writing and reading a file. All
processes measure the node's GPUs, each test on all GPUs of a node at once: copies, products
in float32 and bf16, a sparse product, copies from and to the host. Then they read NVML's
clocks, power, temperature, ECC errors, remapped rows, PCIe lanes and NVLinks, and the kernel's
Xid messages. Then nodes exchange messages: MPI's latency, bandwidth and allreduce, and NCCL's
on GPUs. Allreduces of several lengths have a table like that of nccl-tests.

A value is the median of its rounds. Quartiles are those of the rounds of the worst device.

A device is compared with the file of --reference, or with its peers: devices of the same
product in the job, from five nodes on. Let m be the median of the peers' speeds, and d the
median distance from m. A device is slow if (m - speed) / max(1.48 d, 0.08 m) >= 2.5, so it is
at least 20 % slower. A test that cannot run is "not available" and fails nobody.

During each measurement of a host dynmo watches what others take of the cores that it may use:
other processes, and in a virtual machine the machine below ("steal"). Processes of the same
mpirun or srun are no others. A measurement counts if others take at most a tenth of a core; a
disturbed one is repeated. If none counts, the check is BUSY: it is not judged, and no
reference is written. With --clock virtual (CPU time, one thread) and with --small nobody
watches. A reference of one clock is not for the other, and --small has none.

--records DIR keeps the results of every process, check by check, and --judge DIR judges such
a folder later. It names the nodes that died on the way and judges the others.
jobs/node_bench.sbatch does both.

The page, the last line of --json and the file for Prometheus have the verdict, the time of
the measurement and the version. Page and JSON have the command and the thresholds too.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			n.name = "node"
			if err := n.check(c); err != nil {
				leaveItToRank0(err)
				return usageError{err}
			}
			if n.judge != nil {
				return n.judgeRecords(c)
			}
			n.measured = time.Now()
			if gpus, err := cuda.Probe(); err == nil && len(gpus.GPUs) > 0 && !n.passive() {
				if _, err := sibling(); err == nil || cuda.Built {
					if err := useGPU("cuda"); err != nil {
						return nodeError{err, exitNotMeasured}
					}
				}
			}
			if mpi.Launched() {
				return n.inWorld(c, func(w *nodeWorld, r *recorder) (judged, err error) { return n.together(c, w, r) })
			}
			return n.alone(c)
		},
	}
	f := c.Flags()
	f.BoolVar(&n.quick, "quick", false, "for a health check: this machine alone, under 50 s, silent if it is healthy; with a job on it no measurement, only what devices report (status 3 without a fault)")
	f.BoolVar(&n.small, "small", false, "small operands, whose rates mean nothing: whether everything runs")
	f.Float64Var(&n.seconds, "seconds", n.seconds, "seconds of the rounds of a check, above 0")
	f.DurationVar(&n.limit, "limit", n.limit, "longest time of one check; a longer one has run out of time")
	f.DurationVar(&n.burn, "burn", 0, "repeat products for as long and compare their bits, between equal devices too")
	f.StringVar(&n.folder, "folder", n.folder, "where a file is written and read")
	n.outputs(c)
	f.StringVar(&n.records, "records", "", "folder, shared by all nodes, that gets what each process found")
	f.StringSliceVar(&n.judge, "judge", nil, "measure nothing: judge the records in this folder; of a second one, in which suspects were measured again, the better value counts")
	f.StringVar(&n.nodes, "nodes", "", "with --judge, the nodes that should have answered, as node[1-180]")
	return c
}

// outputs adds the flags for references and output files to a command.
func (n *nodeFlags) outputs(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&n.reference, "reference", "", "file of what checks should reach")
	n.write.named(c, "write-reference", "", "write such a file from what is measured")
	n.prometheus.named(c, "prometheus", "", "also write a text file for Prometheus's node exporter, over an older one")
	n.page.named(c, "page", "", "also write a page for a browser")
	f.BoolVar(&n.force, "force", false, "write over what --page, --write-reference and --records name")
	f.StringVar(&n.compare, "compare", "", "say what has changed since this output of --json")
}

// check validates the flags and reads the reference.
func (n *nodeFlags) check(c *cobra.Command) error {
	switch {
	case n.bench.clock != "wall" && mpi.Launched():
		return errors.New("--clock virtual counts one thread's time: want --clock wall with several processes")
	case c.Flags().Changed("rounds"):
		return errors.New("--rounds: has no effect: want --seconds")
	case n.seconds <= 0 || n.seconds > 600:
		return fmt.Errorf("--seconds %g: want above 0, at most 600", n.seconds)
	case n.limit < time.Second:
		return fmt.Errorf("--limit %v: want at least 1s", n.limit)
	case n.burn < 0:
		return fmt.Errorf("--burn %v: want at least 0", n.burn)
	case n.quick && (n.burn > 0 || n.records != "" || mpi.Launched()):
		return errors.New("--quick looks at this machine alone, by itself: want no --burn, no --records, no mpirun or srun with several tasks")
	case n.small && (n.reference != "" || n.write.path != ""):
		return errSmall
	case n.nodes != "" && n.judge == nil:
		return errors.New("--nodes: want --judge")
	}
	if info, err := os.Stat(n.folder); err != nil || !info.IsDir() {
		return fmt.Errorf("--folder %s: want a folder", n.folder)
	}
	if n.quick && !c.Flags().Changed("seconds") {
		n.seconds = 0.5
	}
	if !c.Flags().Changed("threads") && n.bench.clock == "wall" {
		n.bench.threads = allowedCores()
	}
	var err error
	if n.clock, err = n.bench.newClock(); err != nil {
		return err
	}
	return n.files(c)
}

// files reads the files that the flags name, and checks those to write, before anything is measured.
func (n *nodeFlags) files(c *cobra.Command) (err error) {
	n.page.force, n.write.force, n.prometheus.force = n.force, n.force, true
	if err := cmp.Or(n.page.check(), n.write.check(), n.prometheus.check()); err != nil {
		return err
	}
	if n.reference != "" {
		if n.bounds, err = verdict.ReadReference(n.reference); err != nil {
			return err
		}
	}
	if n.compare != "" {
		var note string
		n.before, note, err = files.Lines[verdict.Finding](n.compare)
		tellNotes(c.ErrOrStderr(), note)
	}
	return err
}

// errSmall refuses a reference for rates that mean nothing.
var errSmall = errors.New("rates of --small mean nothing: want no --reference and no --write-reference with them")

// allowedCores returns how many processors the launcher left to this process.
func allowedCores() int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return runtime.NumCPU()
	}
	return set.Count()
}

// nodeName returns Slurm's name of this node, or the host name.
func nodeName() string {
	host, _ := os.Hostname()
	return cmp.Or(os.Getenv("SLURMD_NODENAME"), host, "unknown")
}

// passive reports whether a check must measure nothing: a quick check while a step of a Slurm job
// runs on this node. It looks for the process of such a step and asks no daemon.
func (n *nodeFlags) passive() bool { return n.quick && isRunning("slurmstepd") }

// alone measures this machine as one process.
func (n *nodeFlags) alone(c *cobra.Command) error {
	r, err := n.newRecorder(0)
	if err != nil {
		return usageError{err}
	}
	r.bar = barOf(c)
	limit := n.limit
	if n.quick {
		limit = quickLimit
	}
	r.limit, r.expired = limit, func(row verdict.Row) {
		quit(tell(c.Root().Name(), n.late(row), c.ErrOrStderr()))
	}
	n.measure(r, 0, 1)
	if err := r.close(); err != nil {
		return nodeError{err, exitNotMeasured}
	}
	return n.conclude(c, r.rows, nil, nil)
}

// late returns the error of a check that did not end within its limit.
func (n *nodeFlags) late(row verdict.Row) error {
	findings := verdict.Judge([]verdict.Row{row}, nil, nil)
	return n.sentence(findings, verdict.Summarise(findings, nil))
}

// quickLimit is the longest time of a quick check: Slurm ends a health check after 60 s.
const quickLimit = 45 * time.Second
