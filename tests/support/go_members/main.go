// A member of a group with franz-go or sarama: it prints what it is assigned and each record that it gets, and commits. Or a
// producer of numbered records. See group_members.py.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

type asked struct {
	bootstrap, topic, group, assignor, instance string
	sessionTimeout, pollTimeout                 time.Duration
}

// Lines of both are written at once: whoever reads them may kill this process.
func say(words ...any) {
	fmt.Println(words...)
}

func must(err error) {
	if err != nil {
		say("error", err)
		os.Exit(1)
	}
}

func milliseconds(text string) time.Duration {
	number, err := strconv.Atoi(text)
	must(err)
	return time.Duration(number) * time.Millisecond
}

// usage: LIBRARY produce BOOTSTRAP TOPIC FIRST COUNT
// usage: LIBRARY consume BOOTSTRAP TOPIC GROUP ASSIGNOR SESSION_MS POLL_MS [INSTANCE]
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	words := os.Args[1:]
	library, action, a := words[0], words[1], asked{bootstrap: words[2], topic: words[3]}
	if action == "produce" {
		first, err := strconv.Atoi(words[4])
		must(err)
		count, err := strconv.Atoi(words[5])
		must(err)
		map[string]func(context.Context, asked, int, int){"franz": franzProduce, "sarama": saramaProduce}[library](ctx, a, first, count)
		return
	}
	a.group, a.assignor = words[4], words[5]
	a.sessionTimeout, a.pollTimeout = milliseconds(words[6]), milliseconds(words[7])
	if len(words) > 8 {
		a.instance = words[8]
	}
	map[string]func(context.Context, asked){"franz": franzConsume, "sarama": saramaConsume}[library](ctx, a)
}
