# What gpu.sh packs on a machine with Go for one without. Sourced by gpu.sh, in the
# root of the repository.

prepare() {
	local what
	TAGS=mpi detect
	if [ -z "$has_go" ] || ! served mpi || ! find_nvcc; then
		say 'prepare needs Go, Open MPI and the CUDA toolkit: ./build.sh cuda says more'
		exit 2
	fi
	rm -rf build/gpu
	mkdir -p "$pack"/{bin,lib,openmpi,share}
	cuda_go
	go build -trimpath -tags mpi -ldflags '-s -w' -o "$pack/bin/dynmo" ./src/cmd/dynmo
	go build -trimpath -tags 'mpi cuda' -ldflags '-s -w' -o "$pack/bin/dynmo-cuda" ./src/cmd/dynmo
	for what in kernel/cuda device/cuda comm/nccl train; do
		go test -c -trimpath -tags 'mpi cuda' -ldflags '-s -w' -o "$pack/bin/${what//\//-}.test" "./src/$what"
	done
	"$pack/bin/dynmo" data prepare --extensions .go -o "$pack/corpus.bin" src
	git describe --always --dirty >"$pack/revision" 2>/dev/null || true
	pack_mpi
	pack_libraries
	tar -C "$pack" -czf "$archive" .
	say "$(du -sm "$archive" | cut -f 1) MiB in $archive, $(du -sm "$pack" | cut -f 1) unpacked"
	rm -rf "$pack"
}

# pack_mpi takes mpirun and what it loads, but for the networks between hosts.
pack_mpi() {
	local plugins help
	plugins=$(ompi_info --path pkglibdir --parsable | sed -n 's/^path:pkglibdir://p' | head -n 1)
	help=$(ompi_info --path pkgdatadir --parsable | sed -n 's/^path:pkgdatadir://p' | head -n 1)
	cp -L "$(command -v mpirun)" "$pack/bin/mpirun"
	cp -L "$plugins"/mca_*.so "$pack/openmpi"
	rm -f "$pack"/openmpi/*_{ucx,ofi,openib,psm,psm2,usnic,monitoring,tm,slurm}*.so
	cp -L "$help"/*.txt "$pack/share"
}

# pack_libraries takes what the programs are linked with, but for the C library
# and the driver, which are the other machine's.
pack_libraries() {
	local library
	ldd "$pack"/bin/* "$pack"/openmpi/*.so 2>/dev/null | sed -n 's/^.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
		grep -vE '/(lib(c|m|dl|rt|pthread|resolv|util)\.so|ld-linux|libcuda|libnvidia|libstdc)' |
		while read -r library; do
			cp -L "$library" "$pack/lib/"
		done
}
