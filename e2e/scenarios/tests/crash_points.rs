//! At each point of a failover in turn the leader ends and another operator carries on, or the API server is gone
//! for a while.
//!
//! `CRASH_REPEATS` repeats all points, `CRASH_LANES` is the number of clusters at work at the same time. The API
//! server is stopped at one point of each kind, with `API_POINTS=all` at all of them. `REDIS_IMAGE` names the
//! server build.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::{try_join, try_join_all};
use redis_ha_operator::api::RedisClusterSpec;
use scenarios::cluster::Cluster;
use scenarios::confirmed::Confirming;
use scenarios::crash_points::{At, CrashPoints, Trap, When};
use scenarios::scene::{SETTLE, Scene};
use tokio::time::{Instant, sleep};
use world::{Signal, World, addresses, wait_for};

/// The old master of every other point stays away this long.
const AWAY: Duration = Duration::from_secs(20);

/// A replica that the operators have not seen for this long is no witness.
const OUT_OF_SIGHT: Duration = Duration::from_secs(6);

/// Labels are written up to a second after everything else.
const AFTERMATH: Duration = Duration::from_millis(2500);

/// How long the API server is gone: longer than a leader may act without it.
const OUTAGE: Duration = Duration::from_secs(10);

/// What happens at a point.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    LeaderDies,
    ApiServerStops,
}

/// What a failover goes through.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Course {
    /// Every replica answers: the successor is recorded together with the plan.
    Direct,
    /// The operators cannot reach one replica: the others are cut first, then the successor is chosen.
    WithCut,
}

/// An effect of a failover, and the side of it on which the fault happens.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    course: Course,
    name: String,
    /// Of the effects of this name, from 0.
    nth: usize,
    when: When,
    /// The old master stays away for a while, or comes back at once.
    away: bool,
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { course, name, nth, when, away } = self;
        let master = if *away { "away" } else { "back at once" };
        write!(f, "{course:?}: {when:?} {name} {nth}, old master {master}")
    }
}

/// Each of these effects twice: the fault happens before it, and after it.
fn points(course: Course, effects: &[String]) -> Vec<Point> {
    let mut points = Vec::new();
    for (number, name) in effects.iter().enumerate() {
        let nth = effects.iter().take(number).filter(|other| *other == name).count();
        // Only a server that is back has clients that can be cut.
        let away = number % 2 == 0 && name != "CutClients";
        for when in [When::Before, When::After] {
            points.push(Point { course, name: name.clone(), nth, when, away });
        }
    }
    points
}

/// The first effect of each name: the fault happens before it and after it in turn.
fn one_of_each_kind(points: &[Point]) -> Vec<Point> {
    let mut chosen: Vec<Point> = Vec::new();
    for point in points {
        let when = if chosen.len().is_multiple_of(2) { When::Before } else { When::After };
        if point.when == when && chosen.iter().all(|other| other.name != point.name) {
            chosen.push(point.clone());
        }
    }
    chosen
}

/// A cluster, and operators that can be ended at any effect.
struct Lane {
    scene: Scene,
    cluster: Cluster,
    points: HashMap<String, CrashPoints>,
    round: u32,
}

/// What one failover came to.
struct Ended {
    /// Whether the point was reached.
    hit: bool,
    effects: Vec<String>,
    confirmed: usize,
    took: Duration,
}

impl Lane {
    async fn open(world: World) -> Result<Self> {
        let mut scene = Scene::open(world, "crash").await?;
        let mut points = HashMap::new();
        start_operator(&mut scene, &mut points).await?;
        scene.operators.leader(SETTLE).await?;
        start_operator(&mut scene, &mut points).await?;
        let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
        Ok(Self { scene, cluster, points, round: 0 })
    }

    async fn leader(&mut self) -> Result<(usize, i32, String)> {
        let index = self.scene.operators.leader(SETTLE).await?;
        let operator = self.scene.operators.all().get(index).context("the leader runs")?;
        Ok((index, operator.process.pid().context("the leader runs")?, operator.pod_name.clone()))
    }

    /// All points of both courses, from a failover that nothing disturbs.
    async fn all_points(&mut self) -> Result<Vec<Point>> {
        let mut each = Vec::new();
        for course in [Course::Direct, Course::WithCut] {
            let undisturbed = self.fail_over(course, None).await.with_context(|| format!("{course:?}"))?;
            let effects = undisturbed.effects;
            let (count, took) = (effects.len(), undisturbed.took);
            println!("{course:?}: {count} effects in {took:?}: {}", effects.join(" "));
            ensure!(count >= 8, "a failover has more effects than that");
            // What comes after the promotion is the same.
            let differing =
                effects.iter().position(|name| name == "Promote").context("nobody was promoted")?;
            let effects = if course == Course::Direct { &effects[..] } else { &effects[..differing] };
            each.extend(points(course, effects));
        }
        ensure!(each.iter().any(|point| point.name == "Detach"), "nobody was cut");
        Ok(each)
    }

    /// Kills the master, and lets the fault happen at this point of the failover; then judges what came out of it.
    async fn fail_over(&mut self, course: Course, disturbed: Option<(&Point, Fault)>) -> Result<Ended> {
        self.round += 1;
        self.cluster.settled(SETTLE).await?;
        sleep(AFTERMATH).await;
        let addresses = self.cluster.pods().await?.into_iter().map(|pod| pod.ip).collect();
        let prefix = format!("round-{}", self.round);
        let mut keys = self.cluster.write_confirmed(&prefix, 100, 2).await?;
        let writer = Confirming::start(&format!("{prefix}-w"), addresses, self.cluster.password().await?);
        sleep(Duration::from_millis(200)).await;
        let promotions = self.cluster.promotions()?;
        let (index, pid, name) = self.leader().await?;
        let points = &self.points[&name];
        let away = disturbed.is_some_and(|(point, _)| point.away);
        let old = self.cluster.master().await?;
        let delay = if away { AWAY } else { Duration::ZERO };
        let hidden = self.hide(course, &old.name).await?;
        self.cluster.world.set_restart_delay(&old.namespace, &old.name, Some(delay))?;
        match disturbed {
            Some((Point { name, nth, when, .. }, fault)) => {
                let at = At { name: name.clone(), nth: *nth };
                let signal = (fault == Fault::LeaderDies).then_some((Signal::SIGKILL, pid));
                points.set(Trap { at, when: *when, signal });
            }
            None => points.count(),
        }
        let killed = Instant::now();
        old.kill(Signal::SIGKILL)?;
        let hit = self.hit_or_done(points, &old.name, hidden.as_deref()).await?;
        let effects = points.effects();
        if let Some(hidden) = hidden {
            self.cluster.world.heal(addresses::OUTER, &hidden).await?;
        }
        match disturbed.filter(|_| hit) {
            Some((_, Fault::LeaderDies)) => {
                self.scene.operators.kill(index).await?;
                self.points.remove(&name);
            }
            Some((_, Fault::ApiServerStops)) => self.without_api_server(&name).await?,
            None => {}
        }
        let master = self.cluster.one_master(SETTLE).await?;
        self.cluster.settled(SETTLE).await?;
        let took = killed.elapsed();
        ensure!(master.name != old.name, "{} is master again", old.name);
        let promoted = self.cluster.promotions()? - promotions;
        ensure!(promoted == 1, "{promoted} promotions");
        keys.extend(writer.keys());
        drop(writer);
        let missing = self.cluster.missing(&master.ip, &keys).await?;
        ensure!(missing.is_empty(), "{} of {} confirmed keys are lost", missing.len(), keys.len());
        while self.scene.operators.all().len() < 2 {
            start_operator(&mut self.scene, &mut self.points).await?;
        }
        Ok(Ended { hit, effects, confirmed: keys.len(), took })
    }

    /// This operator, which is held at its point, finds no API server when it goes on.
    async fn without_api_server(&mut self, name: &str) -> Result<()> {
        let world = self.cluster.world.clone();
        world.stop_api().await?;
        self.points[name].release();
        sleep(OUTAGE).await;
        world.start_api().await?;
        for operator in self.scene.operators.all() {
            ensure!(operator.process.pid().is_some(), "{} has ended", operator.pod_name);
        }
        Ok(())
    }

    /// Hides a replica from the operators, if this course wants it; its address.
    async fn hide(&self, course: Course, master: &str) -> Result<Option<String>> {
        if course == Course::Direct {
            return Ok(None);
        }
        let pods = self.cluster.pods().await?;
        let replica = pods.into_iter().find(|pod| pod.name != master).context("there are replicas")?;
        self.cluster.world.cut(addresses::OUTER, &replica.ip).await?;
        sleep(OUT_OF_SIGHT).await;
        Ok(Some(replica.ip))
    }

    /// Waits for the point; `false` when the failover was over without it.
    async fn hit_or_done(&self, points: &CrashPoints, old: &str, hidden: Option<&str>) -> Result<bool> {
        let over = wait_for("the point or the end of the failover", SETTLE, async || {
            if points.hit().is_some() {
                return Ok(Some(false));
            }
            let status = self.cluster.status().await?;
            if let Some(hidden) = hidden.filter(|_| status.master.as_deref() != Some(old)) {
                self.cluster.world.heal(addresses::OUTER, hidden).await?;
            }
            let is = |kind: &str| status.conditions.iter().any(|it| it.type_ == kind && it.status == "True");
            let ready = is("FailoverReady") && is("ReplicationHealthy");
            Ok((status.master.as_deref() != Some(old) && ready).then_some(true))
        })
        .await?;
        if over {
            sleep(AFTERMATH).await;
        }
        Ok(points.hit().is_some())
    }
}

async fn start_operator(scene: &mut Scene, points: &mut HashMap<String, CrashPoints>) -> Result<()> {
    let asked = CrashPoints::listen()?;
    let mut options = scene.options();
    options.args.push(asked.argument().into());
    let name = scene.operators.start(&options).await?.pod_name.clone();
    points.insert(name, asked);
    Ok(())
}

fn number_from_env(name: &str, default: usize) -> usize {
    std::env::var_os(name).and_then(|text| text.to_str()?.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_killed_at_any_point_of_a_failover_leaves_one_master_and_all_data() -> Result<()> {
    let world = World::enter_alone().await?;
    let mut first = Lane::open(world.clone()).await?;
    let each = first.all_points().await?;
    let mut queue = VecDeque::new();
    for _ in 0..number_from_env("CRASH_REPEATS", 1) {
        queue.extend(each.iter().cloned());
    }
    let wanted = queue.len();
    let begun = Instant::now();
    let queue = Mutex::new(queue);
    let lanes = number_from_env("CRASH_LANES", 6).max(1);
    let fault = Fault::LeaderDies;
    let others = (1..lanes).map(|_| async { work(Lane::open(world.clone()).await?, &queue, fault).await });
    let (done, more) = try_join(work(first, &queue, fault), try_join_all(others)).await?;
    let reached: Vec<Point> = more.into_iter().flatten().chain(done).collect();
    println!(
        "{} of {wanted} points reached in {:.0?}: one master each, nothing lost",
        reached.len(),
        begun.elapsed()
    );
    all_kinds_reached(&each, &reached)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_gone_from_any_point_of_a_failover_on_delays_it_and_no_more() -> Result<()> {
    let mut lane = Lane::open(World::enter_alone().await?).await?;
    let mut each = lane.all_points().await?;
    if std::env::var_os("API_POINTS").is_none_or(|wanted| wanted != "all") {
        each = one_of_each_kind(&each);
    }
    let begun = Instant::now();
    let reached = work(lane, &Mutex::new(each.iter().cloned().collect()), Fault::ApiServerStops).await?;
    println!(
        "the API server stopped at {} of {} points in {:.0?}: one master each, nothing lost",
        reached.len(),
        each.len(),
        begun.elapsed()
    );
    all_kinds_reached(&each, &reached)
}

/// How often an effect is repeated differs from run to run; the first one of each kind is always there.
fn all_kinds_reached(wanted: &[Point], reached: &[Point]) -> Result<()> {
    for point in wanted.iter().filter(|point| point.nth == 0) {
        ensure!(reached.contains(point), "never reached: {point}");
    }
    Ok(())
}

/// Takes point after point; those that were reached.
async fn work(mut lane: Lane, queue: &Mutex<VecDeque<Point>>, fault: Fault) -> Result<Vec<Point>> {
    let mut reached = Vec::new();
    loop {
        let next = queue.lock().ok().and_then(|mut queue| queue.pop_front());
        let Some(point) = next else { break };
        let ended = lane.fail_over(point.course, Some((&point, fault))).await;
        let ended = ended.with_context(|| format!("{}: {point}", lane.scene.namespace))?;
        let hit = if ended.hit { "" } else { " (not reached)" };
        println!("{point}{hit}: {} keys kept, {:.1?}", ended.confirmed, ended.took);
        reached.extend(ended.hit.then_some(point));
    }
    lane.scene.close().await?;
    Ok(reached)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_asked_to_end_hands_over_at_once() -> Result<()> {
    let mut lane = Lane::open(World::enter().await?).await?;
    let (index, _, name) = lane.leader().await?;
    let asked = Instant::now();
    let code = lane.scene.operators.terminate(index).await?;
    let ended = asked.elapsed();
    lane.points.remove(&name);
    lane.leader().await?;
    let led = asked.elapsed();
    println!("SIGTERM: ended with code {code} after {ended:.1?}, another leads after {led:.1?}");
    assert_eq!(code, 0);
    // A lease that was not given back lasts 8 s.
    assert!(led < Duration::from_secs(5), "{led:?}");
    let ended = lane.fail_over(Course::Direct, None).await?;
    println!("a failover by the new leader: {:.1?}", ended.took);
    lane.scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_slept_through_a_failover_changes_nothing_when_it_wakes() -> Result<()> {
    let mut lane = Lane::open(World::enter().await?).await?;
    let (_, pid, name) = lane.leader().await?;
    signal(pid, Signal::SIGSTOP)?;
    lane.wait_for_another(&name).await?;
    let stale = lane.scene.operators.all().iter().position(|it| it.pod_name == name).context("it exists")?;
    let stale = lane.scene.operators.all().swap_remove(stale);
    lane.fail_over(Course::Direct, None).await?;
    lane.wakes_harmlessly(pid).await?;
    drop(stale);
    lane.scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_stopped_within_a_failover_changes_nothing_when_it_wakes() -> Result<()> {
    let mut lane = Lane::open(World::enter().await?).await?;
    // Before the plan is on record, before the replicas are cut, before the promotion, before the route.
    let course = |effect: &str| if effect == "Detach" { Course::WithCut } else { Course::Direct };
    for effect in ["WriteStatus", "Detach", "Promote", "Route"] {
        lane.round += 1;
        lane.cluster.settled(SETTLE).await?;
        sleep(AFTERMATH).await;
        let keys = lane.cluster.write_confirmed(&format!("stopped-{}", lane.round), 100, 2).await?;
        let promotions = lane.cluster.promotions()?;
        let (index, pid, name) = lane.leader().await?;
        let points = &lane.points[&name];
        let old = lane.cluster.master().await?;
        let hidden = lane.hide(course(effect), &old.name).await?;
        points.stop_before(effect, pid);
        old.kill(Signal::SIGKILL)?;
        wait_for("the point is reached", SETTLE, async || Ok(points.hit())).await?;
        if let Some(hidden) = hidden {
            lane.cluster.world.heal(addresses::OUTER, &hidden).await?;
        }
        lane.wait_for_another(&name).await?;
        let stale = lane.scene.operators.all().swap_remove(index);
        let master = lane.cluster.one_master(SETTLE).await?;
        lane.cluster.settled(SETTLE).await?;
        lane.points[&name].release();
        lane.wakes_harmlessly(pid).await?;
        assert_eq!(lane.cluster.promotions()? - promotions, 1, "before {effect}");
        assert_eq!(lane.cluster.missing(&master.ip, &keys).await?, [] as [String; 0]);
        println!("stopped before {effect}: one promotion, nothing changed after it woke");
        drop(stale);
        lane.points.remove(&name);
        start_operator(&mut lane.scene, &mut lane.points).await?;
    }
    lane.scene.close().await
}

impl Lane {
    /// Waits until an operator of another name leads.
    async fn wait_for_another(&self, name: &str) -> Result<()> {
        wait_for("another operator leads", SETTLE, async || {
            let leader = self.scene.operators.holder().await?;
            Ok((!leader.is_empty() && !leader.starts_with(&format!("{name}_"))).then_some(()))
        })
        .await
    }

    /// The process goes on; for some seconds nothing of the cluster changes.
    async fn wakes_harmlessly(&self, pid: i32) -> Result<()> {
        let before =
            (self.cluster.one_master(SETTLE).await?, self.cluster.promotions()?, self.record().await?);
        signal(pid, Signal::SIGCONT)?;
        sleep(Duration::from_secs(4)).await;
        let after =
            (self.cluster.one_master(SETTLE).await?, self.cluster.promotions()?, self.record().await?);
        ensure!(before == after, "the stale leader changed something: {before:?} -> {after:?}");
        Ok(())
    }

    async fn record(&self) -> Result<String> {
        Ok(serde_json::to_string(&self.cluster.status().await?.supervision)?)
    }
}

fn signal(pid: i32, signal: Signal) -> Result<()> {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).context("send a signal to an operator")
}
