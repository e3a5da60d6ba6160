package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var franzAssignors = map[string]kgo.GroupBalancer{
	"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
	"sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

func franzProduce(ctx context.Context, a asked, first, count int) {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(a.bootstrap, ",")...), kgo.DefaultProduceTopic(a.topic))
	must(err)
	defer client.Close()
	for number := first; number < first+count; number++ {
		client.Produce(ctx, kgo.StringRecord(strconv.Itoa(number)), func(_ *kgo.Record, err error) { must(err) })
	}
	must(client.Flush(ctx))
}

func franzConsume(ctx context.Context, a asked) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(a.bootstrap, ",")...),
		kgo.ConsumerGroup(a.group),
		kgo.ConsumeTopics(a.topic),
		kgo.Balancers(franzAssignors[a.assignor]),
		kgo.SessionTimeout(a.sessionTimeout),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, all map[string][]int32) {
			say("assigned", len(all[a.topic]))
		}),
	}
	if a.instance != "" {
		options = append(options, kgo.InstanceID(a.instance))
	}
	client, err := kgo.NewClient(options...)
	must(err)
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachRecord(func(record *kgo.Record) { say("record", string(record.Value)) })
		_ = client.CommitUncommittedOffsets(ctx) // one that is too late is refused, and the group has rebalanced
	}
}
