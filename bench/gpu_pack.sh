# Makes the pack of gpu.sh, on a machine with Go, for a machine without. Sourced by gpu.sh,
# in the root of the repository.

# prepare [REVISION]: the pack, with the sources of another revision's kernels.
prepare() {
	local what before=${1:-}
	[ -z "$before" ] || before=$(git rev-parse --short --verify "$before^{commit}") || exit 2
	TAGS=mpi detect
	if [ -z "$has_go" ] || ! served mpi || ! find_nvcc; then
		say 'prepare needs Go, Open MPI and the CUDA toolkit: ./build.sh cuda says more'
		exit 2
	fi
	rm -rf build/gpu
	mkdir -p "$pack"/{bin,lib,openmpi,share}
	cuda_go
	revision >"$pack/revision"
	if [ -n "$before" ]; then
		mkdir "$pack/before"
		git archive "$before" csrc | tar -C "$pack/before" -x
		echo "$before" >"$pack/before/revision"
	fi
	go build -trimpath -tags mpi -ldflags "-s -w -X main.version=$(revision)" -o "$pack/bin/dynmo" ./src/cmd/dynmo
	go build -trimpath -tags 'mpi cuda' -ldflags "-s -w -X main.version=$(revision)" -o "$pack/bin/dynmo-cuda" ./src/cmd/dynmo
	cuda_library
	cp lib/libdynmo_cuda.so "$pack/lib/"
	for what in kernel/cuda device/cuda comm/nccl kind/prune; do
		go test -c -trimpath -tags 'mpi cuda' -ldflags '-s -w' -o "$pack/bin/${what//\//-}.test" "./src/$what"
	done
	"$pack/bin/dynmo" data prepare --extensions .go -o "$pack/corpus.bin" src
	pack_mpi
	pack_libraries
	tar -C "$pack" -czf "$archive" .
	say "$(du -sm "$archive" | cut -f 1) MiB in $archive, $(du -sm "$pack" | cut -f 1) unpacked"
	rm -rf "$pack"
}

# pack_mpi packs mpirun and its plugins, without those for networks between hosts. Open MPI 5
# may have all its plugins in its library, and its mpirun starts prterun and prted.
pack_mpi() {
	local program plugins help
	plugins=$(ompi_info --path pkglibdir --parsable | sed -n 's/^path:pkglibdir://p' | head -n 1)
	help=$(ompi_info --path pkgdatadir --parsable | sed -n 's/^path:pkgdatadir://p' | head -n 1)
	for program in mpirun prterun prted; do
		! command -v "$program" >/dev/null || cp -L "$(command -v "$program")" "$pack/bin/"
	done
	find -L "$plugins" -maxdepth 1 -name 'mca_*.so' -exec cp -L -t "$pack/openmpi" {} +
	rm -f "$pack"/openmpi/*_{ucx,ofi,openib,psm,psm2,usnic,monitoring,tm,slurm}*.so
	find -L "$help" -maxdepth 1 -name '*.txt' -exec cp -L -t "$pack/share" {} +
	say "Open MPI: $(ls "$pack/bin" | grep -cE '^(mpirun|prterun|prted)$') programs, $(ls "$pack/openmpi" | wc -l) plugins of $plugins"
}

# pack_libraries packs the libraries of the programs, except the C library and the driver:
# the other machine has these. cuBLASLt and cuSPARSE are hundreds of megabytes and stay out
# too. The kernels' library opens those of a toolkit or of Python packages.
pack_libraries() {
	local library
	ldd "$pack"/bin/* $(ls "$pack"/openmpi/*.so 2>/dev/null) 2>/dev/null | sed -n 's/^.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
		grep -vE '/(lib(c|m|dl|rt|pthread|resolv|util)\.so|ld-linux|libcuda|libnvidia|libstdc)' |
		while read -r library; do
			cp -L "$library" "$pack/lib/"
		done
}
