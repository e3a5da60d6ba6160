module muster.dev/bench/loadgen

go 1.22
