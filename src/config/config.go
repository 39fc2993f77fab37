// Package config holds every setting with its unit, range and default: TOML
// in, one resolved TOML out. There is one table per room.
package config

import "math"

// Config is a run's settings. All facts about a setting are in its tags, and the parser, Validate, Ignored and the resolved file read only them:
//
//	toml          its key
//	default       its value where none is given, as --set takes it
//	doc, unit     for people
//	min, max      smallest and largest value
//	above, below  bounds that are themselves refused
//	oneof         every text that is allowed; with min, integers are too
//	              a text with above, or with real, may be a number, in these bounds
//	joined        a text that may be several of oneof, with this between them
//	when          "table.key=a|b": the setting (or its table) has an effect
//	              only where that other setting has, or joins, one of these values;
//	              "table.key": where it is a text that is not empty
//	only          the command, or commands ("a or b"), that alone look at the setting (or its table):
//	              train or simulate; without it all do
//	shape         "true": costs hold for one value, so that plan and simulate look at
//	              it whatever only says, as long as it has an effect
//	resume        "may": a run that goes on may have another value; any other text says what
//	              that does to losses; without it, or such a tag of the table, it may not
//	was           "table.key": the name that the setting once had, under which it is still read
//	instead       flag of simulate that stands for a setting only train looks at
type Config struct {
	Run        Run        `toml:"run" doc:"the run as a whole"`
	Model      Model      `toml:"model" doc:"the transformer"`
	Data       Data       `toml:"data" only:"train" doc:"the corpus; every byte of a text is a token"`
	Parallel   Parallel   `toml:"parallel" doc:"how work is divided"`
	Mesh       Mesh       `toml:"mesh" resume:"may" doc:"which rank is which stage and replica"`
	Schedule   Schedule   `toml:"schedule" resume:"may" doc:"the order of work in a step"`
	Train      Train      `toml:"train" resume:"may" only:"train" doc:"the loop"`
	Optimizer  Optimizer  `toml:"optimizer" only:"train" doc:"AdamW with warm-up and cosine decay"`
	Dynamic    Dynamic    `toml:"dynamic" only:"train" doc:"what changes the model while it trains"`
	registered registered // tables of kinds, at this place of a file
	Simulate   Simulate   `toml:"simulate" resume:"may" only:"simulate" doc:"what a simulated run assumes, whose dynamic.kind is --dynamic of dynmo simulate"`
	Balance    Balance    `toml:"balance" resume:"may" doc:"when and how layers are moved"`
	Repack     Repack     `toml:"repack" resume:"may" when:"balance.kind=partition|diffusion" doc:"packing of the model onto fewer ranks once it has become cheaper"`
	Elastic    Elastic    `toml:"elastic" resume:"may" only:"train" when:"repack.kind=first-fit|sustain" doc:"what becomes of ranks that hold no layer any more"`
	Checkpoint Checkpoint `toml:"checkpoint" resume:"may" only:"train" doc:"when the state of a run that has a run directory is saved"`
	Device     Device     `toml:"device" doc:"what a rank computes on"`
	Comm       Comm       `toml:"comm" resume:"may" doc:"messages between ranks"`
}

// Run holds the name, seed and clock of the run.
type Run struct {
	Name       string `toml:"name" resume:"may" default:"run" doc:"name in reports" only:"train"`
	Seed       uint64 `toml:"seed" default:"1" min:"0" max:"9223372036854775807" doc:"seed of weights and batches"`
	Clock      string `toml:"clock" resume:"may" default:"auto" oneof:"auto,wall,virtual" doc:"what times the steps; auto is virtual where ranks outnumber cores" only:"train"`
	TraceSteps int    `toml:"trace_steps" resume:"may" default:"16" min:"0" unit:"steps" doc:"most steps whose timeline is kept in trace.json: the second of the run, and those around a move of layers"`
}

// Model is the transformer.
type Model struct {
	Family     string `toml:"family" oneof:"families" doc:"architecture"`
	Blocks     int    `toml:"blocks" default:"6" min:"1" max:"100000" doc:"transformer blocks"`
	Hidden     int    `toml:"hidden" default:"128" min:"1" max:"1048576" doc:"channels; a multiple of heads"`
	Heads      int    `toml:"heads" default:"4" min:"1" max:"1048576" doc:"attention heads"`
	Sequence   int    `toml:"sequence" default:"64" min:"1" max:"1048576" unit:"tokens" doc:"length of a sequence"`
	Vocab      int    `toml:"vocab" default:"256" min:"256" max:"16777216" doc:"vocabulary size; above every id of the corpus: 255 in text, whose bytes are the tokens"`
	Tied       bool   `toml:"tied" default:"true" doc:"whether the head shares the embedding's weights"`
	Grain      string `toml:"grain" default:"block" oneof:"block,half,expert" doc:"what migrates: whole blocks; attention and MLP apart; or attention, and moe.groups groups of experts"`
	HeadShards int    `toml:"head_shards" default:"1" min:"1" max:"65536" doc:"slices of the vocabulary that the head is cut into, each a layer that can move"`
	Init       string `toml:"init" default:"gpt2" oneof:"gpt2,depth-scaled" doc:"initialisation; depth-scaled divides the deviation of block l's weights by sqrt(l+1) (Zhang et al. 2019)" only:"train"`
	Recompute  string `toml:"recompute" resume:"may" default:"none" oneof:"none,attention,block,plan" doc:"what a block computes a second time, right before its backward for inputs, in place of keeping it: its attention, or all but what enters and leaves it; plan lets as many layers of blocks do so as balance.memory_limit_bytes wants, chosen with the cuts; results are the same"`
	Weights    string `toml:"weights" default:"" file:"true" doc:"file of weights to start from (dynmo ckpt import); their model may have more positions than model.sequence, and fewer tokens than model.vocab where that is padded to a multiple; empty draws them" only:"train"`
	_          place
}

// Data is the corpus.
type Data struct {
	Path       string   `toml:"path" resume:"the text is the same" default:"" doc:"file, directory or pattern of texts in UTF-8 (plain, JSON lines or Parquet; .gz or .zst) or of token files (.bin, of llm.c or Megatron-LM); empty means the Go toolchain's own source files"`
	Extensions []string `toml:"extensions" resume:"the text is the same" default:"" doc:"file name endings to read from a directory; empty reads every file"`
	JSONKey    string   `toml:"json_key" resume:"the text is the same" default:"text" doc:"members of JSON lines, or columns of Parquet, that have the text; several with commas are joined by line feeds"`
	DType      string   `toml:"dtype" default:"auto" oneof:"auto,u16,u32" doc:"type of the ids in token files that have no header, as nanoGPT's; auto: the files say it"`
	Weights    string   `toml:"weights" default:"" doc:"shares of the sequences that come from each token file, with commas; empty: by their tokens"`
	Validation string   `toml:"validation" default:"" above:"0" below:"1" doc:"data that nothing is trained on, whose loss is measured: a path as data.path has it, or the share of the corpus that is held out, whole documents where there are several; empty: none"`
	LimitBytes int64    `toml:"limit_bytes" default:"0" min:"0" unit:"bytes" doc:"read no more than this much text, or this much of the ids of a token file; 0 reads all"`
}

// HeldOut returns the share of the corpus that is validation data. It returns 0 if validation data
// is elsewhere or there is none.
func (d Data) HeldOut() float64 {
	share, _ := number(d.Validation)
	return share
}

// Parallel divides the work among ranks.
type Parallel struct {
	Stages         int `toml:"stages" resume:"may" default:"1" min:"1" max:"1000000" doc:"pipeline stages, P"`
	Replicas       int `toml:"replicas" resume:"sums over replicas are added in another order, losses agree up to rounding" default:"1" min:"1" max:"1000000" doc:"data-parallel replicas, D"`
	Microbatches   int `toml:"microbatches" resume:"may" default:"4" min:"1" max:"1000000" doc:"microbatches of each replica in a step, M"`
	MicrobatchSize int `toml:"microbatch_size" default:"2" min:"1" max:"1000000" unit:"sequences" doc:"sequences in a microbatch"`
	_              place
}

// Mesh assigns stages and replicas to ranks.
type Mesh struct {
	Order string `toml:"order" default:"stage-major" oneof:"stage-major,replica-major" doc:"how ranks are laid over stages and replicas"`
}

// Schedule is the order of work in a step.
type Schedule struct {
	Kind     string `toml:"kind" default:"1f1b" oneof:"gpipe,1f1b,interleaved,zb-h1,zb-h2,zb-v,zb-interleaved,list,auto,file" doc:"pipeline schedule; list is made for the measured costs, auto takes the fastest of those with one chunk on a stage and of lists; where partition moves layers by time, both may take two chunks on a stage"`
	Chunks   int    `toml:"chunks" default:"2" when:"schedule.kind=interleaved|zb-interleaved" min:"2" max:"1000" doc:"pieces of the chain on each stage, V"`
	InFlight int    `toml:"in_flight" default:"0" when:"schedule.kind=list|auto" min:"0" unit:"microbatches" doc:"most microbatches on a stage between their forward and their backward for weights, if memory allows; 0 means 2·stages-1, as zb-h2 has"`
	File     string `toml:"file" default:"" file:"true" when:"schedule.kind=file" doc:"schedule as torchtitan writes it: CSV, a row for each stage"`
}

// Train configures the training loop.
type Train struct {
	Steps             int    `toml:"steps" resume:"the remaining learning rates are those of a run of the new length" default:"100" min:"1" doc:"training steps" instead:"--steps"`
	OnNaN             string `toml:"on_nan" default:"stop" oneof:"stop,skip" doc:"what a loss or gradient that is not finite does"`
	NaNLimit          int    `toml:"nan_limit" default:"5" when:"train.on_nan=skip" min:"1" unit:"steps" doc:"skipped steps in a row that end the run"`
	LogEvery          int    `toml:"log_every" default:"10" min:"1" unit:"steps" doc:"steps between log lines"`
	ValidateEvery     int    `toml:"validate_every" default:"0" min:"0" when:"data.validation" unit:"steps" doc:"steps between measurements of the validation loss; 0 measures it after the last step alone, as is done in any case"`
	ValidateSequences int    `toml:"validate_sequences" default:"64" min:"1" max:"65536" when:"data.validation" unit:"sequences" doc:"sequences in the validation loss, which is their mean; they are the same every time, spread evenly over the validation data; rounded up to whole microbatches"`
	Hash              bool   `toml:"hash" default:"false" doc:"print the hash of the final weights"`

	StoppedIsSuccess bool `toml:"stopped_is_success" default:"false" doc:"whether a run that a signal stopped, with a checkpoint, ends with status 0 instead of 85"`
}

// Optimizer is AdamW with warm-up and cosine decay.
type Optimizer struct {
	LR     float64 `toml:"lr" default:"1e-3" above:"0" doc:"peak learning rate"`
	MinLR  float64 `toml:"min_lr" default:"1e-4" min:"0" doc:"learning rate at the end of the cosine"`
	Warmup int     `toml:"warmup" default:"10" min:"0" unit:"steps" doc:"steps of linear warm-up"`
	Beta1  float64 `toml:"beta1" default:"0.9" min:"0" below:"1" doc:"decay of the first moment"`
	Beta2  float64 `toml:"beta2" default:"0.95" min:"0" below:"1" doc:"decay of the second moment"`
	Eps    float64 `toml:"eps" default:"1e-8" above:"0" doc:"added to the root of the second moment"`
	Decay  float64 `toml:"decay" default:"0.1" min:"0" doc:"decoupled weight decay of matrices"`
	Clip   float64 `toml:"clip" default:"1.0" min:"0" doc:"largest global norm of the gradient; 0 never clips"`
	Shard  bool    `toml:"shard" resume:"may" shape:"true" default:"false" doc:"whether each replica of a stage keeps moments and master weights only of its slice of every layer, updates the slice and sends its weights to the others (ZeRO, stage 1); moments and masters then take 1/parallel.replicas of the memory, and results are the same"`
}

// Sharded reports whether several replicas divide master weights and moments among them.
func (c Config) Sharded() bool { return c.Optimizer.Shard && c.Parallel.Replicas > 1 }

// Dynamic configures how the model changes while it trains.
type Dynamic struct {
	Kind   string `toml:"kind" default:"none" oneof:"kinds" joined:"+" doc:"kind of dynamism, or several: prune+freeze" shape:"true" instead:"--dynamic"`
	Replay string `toml:"replay" default:"" file:"true" only:"train" doc:"file of loads that are forced on the layers, whatever the model learns: of JSON lines, one for a step and a layer (and a microbatch), with the load of a kind: density, frozen, buckets, left, taken or tokens. Such a run is marked replayed, reports no loss, and is not exported; empty: the model decides"`
}

// Simulate has the assumptions of a simulated run about kinds of dynamism, and about the work
// between two steps.
type Simulate struct {
	Head          float64 `toml:"head" default:"1" above:"0" max:"1000" doc:"times the seconds that the costs say of the head's layers; 0.02 of a vocabulary of 50,000 is one of 1,000"`
	Attention     float64 `toml:"attention" default:"0" min:"0" below:"1" when:"dynamic.kind=prune|moe|attention" doc:"share of a block's seconds in attention over the scores; 0 is that of the multiplications, T/(T + 12·C) of model.sequence and model.hidden in family gpt2"`
	_             place
	Measuring     float64 `toml:"measure_times" default:"1" min:"0" max:"1000000" when:"balance.kind=partition|diffusion or schedule.kind=list|auto|zb-v" doc:"times the seconds that measuring a step took in real runs; 0 makes it free"`
	Deciding      float64 `toml:"decide_times" default:"1" min:"0" max:"1000000" when:"balance.kind=partition|diffusion or schedule.kind=list|auto|zb-v" doc:"times the seconds that a decision of the balancer took in real runs; 0 makes it free"`
	MoveDelayMost float64 `toml:"move_delay_most" default:"1" min:"1" max:"1000" when:"balance.kind=partition|diffusion" doc:"most times longer that the transfer of a moving layer takes at random, half-normal; comm.delay_most delays the messages of steps alone"`
}

// Products returns the type that decides how fast dense products are: that of a GPU's weights and
// activations, or that which a CPU rounds operands to.
func (d Device) Products() string {
	switch {
	case d.Kind == "cuda":
		return d.Precision
	case d.CPUPrecision == "bf16":
		return "bf16"
	}
	return "f32"
}

// AttentionShare returns the share of a block's seconds that attention over the scores takes. Of
// the multiplications for a token, T·C are causal attention (2 products of T/2·C). The others equal
// the number of weights in the block's matrices: 12·C² for GPT-2.
func (c Config) AttentionShare() float64 {
	if c.Simulate.Attention > 0 {
		return c.Simulate.Attention
	}
	t, hidden := float64(c.Model.Sequence), float64(c.Model.Hidden)
	attention, mlp := c.Matrices()
	return t / (t + (attention+mlp)/hidden)
}

// Balance configures when and how layers move.
type Balance struct {
	Kind             string  `toml:"kind" default:"partition" oneof:"uniform,param,regex,layout,partition,diffusion" doc:"what decides the cuts; the first four never move a layer"`
	By               string  `toml:"by" default:"time" when:"balance.kind=partition|diffusion" oneof:"time,param" doc:"load of a layer: measured seconds, or parameters that are left"`
	Every            string  `toml:"every" default:"auto" when:"balance.kind=partition|diffusion" oneof:"auto" min:"1" unit:"steps" doc:"time between decisions; auto balances when it pays"`
	Regex            string  `toml:"regex" default:"block" when:"balance.kind=regex" doc:"regular expression; layers whose name matches are counted"`
	Layout           string  `toml:"layout" default:"" when:"balance.kind=layout" doc:"cuts in Megatron-LM's notation: Et|t*3|tL"`
	MemoryLimitBytes int64   `toml:"memory_limit_bytes" default:"0" min:"0" unit:"bytes" doc:"memory of a rank for its layers; 0 means no limit"`
	Gaps             string  `toml:"gaps" default:"work" when:"balance.kind=diffusion" oneof:"work,arrival" doc:"load of a stage: its work, or also the time until its input arrives from the stage before (paper, E.1)"`
	Gamma            float64 `toml:"gamma" default:"1e-3" when:"balance.kind=diffusion" above:"0" doc:"phase 1 stops when its potential is below this share of the total load"`
	MaxRounds        int     `toml:"max_rounds" default:"10000" when:"balance.kind=diffusion" min:"1" doc:"most rounds of phase 1"`
}

// Moves reports whether layers move while training.
func (b Balance) Moves() bool { return b.Kind == "partition" || b.Kind == "diffusion" }

// String names the balancer: "partition by time", or only the kind if it never
// moves a layer.
func (b Balance) String() string {
	if b.Moves() {
		return b.Kind + " by " + b.By
	}
	return b.Kind
}

// Repack configures the packing of the model onto fewer ranks (paper, section 3.4 and algorithm 4).
type Repack struct {
	Kind         string  `toml:"kind" default:"none" oneof:"none,first-fit,sustain" doc:"what packs: first-fit merges neighbouring stages whose memory fits on one rank (paper, algorithm 4); sustain takes the fewest stages that keep the dense model's throughput"`
	Tolerance    float64 `toml:"tolerance" default:"0.02" min:"0" below:"1" when:"repack.kind=first-fit|sustain" doc:"share of the dense model's throughput that may be given up for fewer stages; with first-fit share of the packed model's for larger microbatches"`
	Unit         string  `toml:"unit" default:"auto" oneof:"auto,rank,node" when:"repack.kind=sustain" doc:"what packing frees: ranks, or whole nodes; with node the nodes that stay are used in full; auto is node where elastic.release is slurm or restart"`
	Stages       int     `toml:"stages" default:"1" min:"1" max:"1000000" when:"repack.kind=first-fit|sustain" doc:"fewest stages that are left"`
	Below        float64 `toml:"below" default:"1" above:"0" max:"1" when:"repack.kind=first-fit" doc:"share of the dense model's seconds below which layers are packed"`
	Microbatches string  `toml:"microbatches" resume:"losses agree up to rounding once microbatches are others" default:"keep" oneof:"keep,adapt" when:"repack.kind=first-fit|sustain" doc:"microbatches on fewer stages: keep leaves their number; adapt takes fewer and larger ones with the same samples, which changes bits, since sums are grouped anew"`
}

// Packs reports whether the model may be packed onto fewer ranks. It is only packed if layers move.
func (c Config) Packs() bool { return c.Repack.Kind != "none" && c.Balance.Moves() }

// Elastic configures the fate of ranks that no longer have a layer.
type Elastic struct {
	Release      string  `toml:"release" default:"park" oneof:"park,exit,slurm,restart" doc:"ranks without layers wait for the end of the run; or end; or end, and Slurm takes their nodes back; or the run ends with a checkpoint and status 75, for a job script that goes on with fewer nodes. Under mpirun slurm, and under MPICH slurm and exit, are as park"`
	RetrySeconds float64 `toml:"retry_seconds" default:"60" min:"0" max:"86400" when:"elastic.release=slurm" unit:"seconds" doc:"time for which Slurm is asked again while it cannot take nodes back"`
}

// Device configures the device of a rank.
type Device struct {
	Kind         string `toml:"kind" resume:"losses agree up to rounding" default:"cpu" oneof:"cpu,cuda" doc:"device of a rank; cuda gives each rank the GPU of its number on its host"`
	Kernel       string `toml:"kernel" resume:"losses agree up to rounding" default:"auto" when:"device.kind=cpu" oneof:"auto,cpu,ref,null" doc:"kernel backend of a CPU; auto is cpu where it is built in, else ref" only:"train"`
	Threads      int    `toml:"threads" resume:"may" default:"1" when:"device.kernel=auto|cpu" min:"1" max:"1024" doc:"threads that share a rank's arithmetic" only:"train"`
	Precision    string `toml:"precision" default:"bf16" when:"device.kind=cuda" oneof:"bf16,f32" doc:"weights and activations of a GPU; with bf16 gradients, moments and master weights are f32, and sums are made in f32"`
	CPUPrecision string `toml:"cpu_precision" resume:"losses agree up to rounding" default:"f32" when:"device.kernel=auto|cpu|ref" oneof:"f32,bf16,bf16-emulated" doc:"precision of a CPU's dense products. With bf16 their operands are rounded to bfloat16, and products are added up in f32; weights, moments and all else are f32. It takes oneDNN, a CPU with avx512_bf16, and 2 more bytes for each weight. bf16-emulated takes neither, and is no faster than f32" only:"train"`
	Graphs       bool   `toml:"graphs" resume:"may" default:"true" when:"device.kind=cuda" doc:"whether the passes of a layer that repeat are launched as CUDA graphs; results are the same" only:"train"`
	Tune         bool   `toml:"tune" resume:"may" default:"true" when:"device.kind=cuda" doc:"whether rank 0 measures, before the first step, which of cuBLASLt's algorithms makes each dense product fastest; all ranks take these, and checkpoints keep them, for bits follow the choice. With false every product is made by cuBLASLt's own first choice" only:"train"`
	Share        bool   `toml:"share" resume:"may" default:"false" when:"device.kind=cuda" doc:"whether ranks may share a GPU: they then take turns, and times say little" only:"train"`
}

// Checkpoint configures when the state of a run is saved.
type Checkpoint struct {
	Every   string  `toml:"every" default:"auto" oneof:"auto,end,never" min:"1" unit:"steps" doc:"steps between checkpoints; auto saves as often as loses least work (Young 1974), end only when the run ends or is asked to save"`
	Minutes float64 `toml:"minutes" default:"0" min:"0" max:"100000" unit:"minutes" doc:"most minutes between checkpoints, whatever every says; 0 leaves it to every"`
	MTTI    float64 `toml:"mtti" default:"24" when:"checkpoint.every=auto" above:"0" max:"1e6" unit:"hours" doc:"mean time from one interruption of such a run to the next"`
	Keep    int     `toml:"keep" default:"2" min:"1" max:"1000000" doc:"checkpoints that are kept"`
}

// Comm configures the messages between ranks.
type Comm struct {
	StartSeconds    float64 `toml:"start_seconds" default:"300" above:"0" max:"86400" unit:"seconds" doc:"time that all ranks have to start MPI and to agree on program and settings" only:"train"`
	StallSeconds    float64 `toml:"stall_seconds" default:"60" above:"0" max:"86400" unit:"seconds" doc:"least time without any progress of a host's ranks that ends a run; it grows to five times the longest of the last 100 steps" only:"train"`
	DeadlineSeconds float64 `toml:"deadline_seconds" default:"5" above:"0" max:"86400" unit:"seconds" doc:"least time a rank waits for a silent peer on another host, which grows to two steps; a peer of the same host is looked at instead" only:"train"`
	LatencySeconds  float64 `toml:"latency_seconds" default:"5e-6" when:"run.clock=auto|virtual" min:"0" max:"10" unit:"seconds" doc:"time of an empty message on the virtual clock"`
	BandwidthBytes  float64 `toml:"bandwidth_bytes" default:"1e10" min:"0" max:"1e15" unit:"bytes/second" doc:"bandwidth of a link, at least 1000, on the virtual clock and when the price of a move is weighed; 0 means infinite"`
	Sum             string  `toml:"sum" resume:"losses agree up to rounding" default:"float32" oneof:"float32,bfloat16" doc:"type in which gradients travel to be added up over replicas; with bfloat16 each gradient is rounded once, which halves these bytes, and is added in float32. Sums travel in float32"`
	SumGroup        int     `toml:"sum_group" resume:"losses agree up to rounding" default:"1" min:"1" max:"1000000" unit:"replicas" doc:"neighbouring replicas whose gradients are added up first, in their order, at most parallel.replicas; the sums of the groups are then added in their order. With the replicas of a node in a group, fewer bytes travel between nodes; with 1 all replicas are added one after the other. If the last group is smaller its ranks send more"`
	Transport       string  `toml:"transport" was:"comm.carrier" default:"auto" when:"device.kind=cuda" oneof:"auto,nccl,host" doc:"what carries the memory of GPUs between ranks; host copies it through pinned memory and MPI, auto does so only where ranks share a GPU" only:"train or plan"`
	NcclCTAs        int     `toml:"nccl_ctas" default:"4" when:"device.kind=cuda" min:"1" max:"32" doc:"largest number of thread blocks of an NCCL kernel; up to three such kernels run at a time; more blocks carry more over fast links and leave less to computing" only:"train or plan"`
	DelayMost       float64 `toml:"delay_most" default:"1" when:"run.clock=auto|virtual" min:"1" max:"1000" doc:"most times longer that a message takes at random on the virtual clock, half-normal (paper, figure 7); 1 delays none"`
}

// LearningRate returns the learning rate of a step: linear from 0 to LR over the warm-up, then
// half a cosine down to MinLR at the last step (Loshchilov & Hutter 2017).
func (c Config) LearningRate(step int) float64 {
	o := c.Optimizer
	if step < o.Warmup {
		return o.LR * float64(step+1) / float64(o.Warmup)
	}
	progress := float64(step-o.Warmup) / float64(max(1, c.Train.Steps-1-o.Warmup))
	return o.MinLR + (o.LR-o.MinLR)*(1+math.Cos(math.Pi*min(1, progress)))/2
}
