// Package checkpoint writes checkpoints of a run, and resumes from them. The input is the layers of every
// rank between two steps. The output is a directory from which any number of ranks can read the same
// layers, bit for bit. Every rank copies its share of the layers, and writes the copy while training
// continues. A damaged file gives an error that names it:
//
//	RUN_DIR/ckpt/step_00001200/manifest.json           sizes and hashes of the others, and the run's settings
//	                          /layer-00017.safetensors weights, by parameter
//	                          /state-00017.safetensors everything else there is to the layer
//	                          /own-00017-00001.safetensors replica 1's own part, if replicas share it out
//	                          /run.json                the run's state besides its layers
//	RUN_DIR/ckpt/LATEST                                the newest one's name, for people
//
// Manifest and Snapshot describe the files. Writer begins and ends checkpoints, and Reader finds the
// newest one that a run can use. A checkpoint is written under a temporary name. Rank 0 gives it its final
// name once the shares of all ranks are on disk. So a checkpoint with a final name is complete, or was
// damaged later.
package checkpoint
