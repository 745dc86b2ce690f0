//! At each effect of a planned switch in turn the leader is killed and another operator carries on, or it is stopped for
//! a moment, as by a busy machine. Clients write all the time; no acknowledged write may be missing afterwards.
//!
//! `SWITCH_LANES` is the number of clusters at work at the same time.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use redis_ha_operator::api::RedisClusterSpec;
use redis_ha_operator::api::names::SWITCHOVER_ANNOTATION;
use scenarios::cluster::Cluster;
use scenarios::crash_points::{At, CrashPoints, Trap, When};
use scenarios::scene::{SETTLE, Scene};
use scenarios::writer::{Load, Target, Writer};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use world::{Signal, World, wait_for};

/// Labels are written up to a second after everything else, and the other Service's slice a second after the first.
const AFTERMATH: Duration = Duration::from_millis(2500);

/// How long a stopped leader is stopped, in turn.
const STALLS: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(500)];

/// What happens to the leader.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Dies,
    Stalls(Duration),
}

/// An effect, the side of it, and what happens there.
#[derive(Clone, Debug)]
struct Point {
    name: String,
    /// Of the effects of this name, from 0.
    nth: usize,
    when: When,
    fault: Fault,
}

fn points(effects: &[String]) -> Vec<Point> {
    let mut points = Vec::new();
    for (number, name) in effects.iter().enumerate() {
        let nth = effects.iter().take(number).filter(|other| *other == name).count();
        for when in [When::Before, When::After] {
            for fault in [Fault::Dies, Fault::Stalls(STALLS[points.len() % STALLS.len()])] {
                points.push(Point { name: name.clone(), nth, when, fault });
            }
        }
    }
    points
}

/// A cluster, and two operators that can be stopped at any effect.
struct Lane {
    scene: Scene,
    cluster: Cluster,
    points: HashMap<String, CrashPoints>,
    round: u32,
}

/// What one switch came to.
struct Ended {
    hit: bool,
    effects: Vec<String>,
    acknowledged: usize,
    moved: bool,
}

impl Lane {
    async fn open(world: World) -> Result<Self> {
        let mut scene = Scene::open(world, "switch").await?;
        let mut points = HashMap::new();
        start_operator(&mut scene, &mut points).await?;
        scene.operators.leader(SETTLE).await?;
        start_operator(&mut scene, &mut points).await?;
        let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
        Ok(Self { scene, cluster, points, round: 0 })
    }

    /// Asks for a switch, lets the fault happen, and judges what came out of it.
    async fn switch(&mut self, point: Option<&Point>) -> Result<Ended> {
        self.round += 1;
        self.cluster.settled(SETTLE).await?;
        sleep(AFTERMATH).await;
        let writers = self.write().await?;
        let index = self.scene.operators.leader(SETTLE).await?;
        let operator = self.scene.operators.all().get(index).context("the leader runs")?;
        let (pid, name) = (operator.process.pid().context("the leader runs")?, operator.pod_name.clone());
        let traps = &self.points[&name];
        let old = self.cluster.master().await?;
        let names = self.cluster.pod_names();
        let place = names.iter().position(|name| *name == old.name).unwrap_or_default();
        let target = names[(place + 1) % names.len()].clone();
        let promotions = self.cluster.promotions()?;
        match point {
            Some(Point { name, nth, when, fault }) => {
                let at = At { name: name.clone(), nth: *nth };
                let signal = if *fault == Fault::Dies { Signal::SIGKILL } else { Signal::SIGSTOP };
                traps.set(Trap { at, when: *when, signal: Some((signal, pid)) });
            }
            None => traps.count(),
        }
        self.cluster.annotate(SWITCHOVER_ANNOTATION, &target).await?;
        let over = wait_for("the point or the end of the switch", SETTLE, async || {
            let answered = self.cluster.annotation(SWITCHOVER_ANNOTATION).await?.is_none();
            Ok((traps.hit().is_some() || answered).then_some(traps.hit().is_none()))
        })
        .await?;
        if over {
            self.cluster.settled(SETTLE).await?;
            sleep(AFTERMATH).await;
        }
        let (hit, effects) = (traps.hit().is_some(), traps.effects());
        match point.map(|point| point.fault).filter(|_| hit) {
            Some(Fault::Dies) => {
                self.scene.operators.kill(index).await?;
                self.points.remove(&name);
            }
            Some(Fault::Stalls(time)) => {
                sleep(time).await;
                traps.release();
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGCONT)?;
            }
            None => {}
        }
        wait_for("the request is answered", SETTLE, async || {
            Ok(self.cluster.annotation(SWITCHOVER_ANNOTATION).await?.is_none().then_some(()))
        })
        .await?;
        self.cluster.settled(SETTLE).await?;
        let master = self.cluster.one_master(SETTLE).await?;
        let promoted = self.cluster.promotions()? - promotions;
        // An undo promotes the old master again, and may be followed by the switch that is still asked for.
        ensure!(promoted <= 3, "{promoted} promotions");
        let now = Instant::now();
        let mut keys = Vec::new();
        for writer in writers {
            writer.acknowledged_after(now, SETTLE).await?;
            keys.extend(writer.stop().1);
        }
        let missing = self.cluster.missing(&master.ip, &keys).await?;
        ensure!(missing.is_empty(), "{} of {} acknowledged writes are lost", missing.len(), keys.len());
        while self.scene.operators.all().len() < 2 {
            start_operator(&mut self.scene, &mut self.points).await?;
        }
        Ok(Ended { hit, effects, acknowledged: keys.len(), moved: master.name == target })
    }

    async fn write(&self) -> Result<Vec<Writer>> {
        let addresses: Vec<String> = self.cluster.pods().await?.into_iter().map(|pod| pod.ip).collect();
        let password = self.cluster.password().await?;
        let writer = |number: u32| {
            let load = Load {
                prefix: format!("round-{}-{number}", self.round),
                password: password.clone(),
                pause: Duration::from_millis(2),
                deadline: Duration::from_secs(1),
            };
            Writer::start(Target::AnyOf(watch::channel(addresses.clone()).1), load)
        };
        Ok((0..3).map(writer).collect())
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

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_killed_or_stalled_at_any_effect_of_a_switch_loses_no_acknowledged_write() -> Result<()> {
    let world = World::enter_alone().await?;
    let mut first = Lane::open(world.clone()).await?;
    let undisturbed = first.switch(None).await?;
    ensure!(undisturbed.moved, "an undisturbed switch moves the master");
    println!("{} effects: {}", undisturbed.effects.len(), undisturbed.effects.join(" "));
    let each = points(&undisturbed.effects);
    ensure!(
        ["Pause", "StepDown", "Promote", "Route"].iter().all(|name| each.iter().any(|it| it.name == *name))
    );
    let wanted = each.len();
    let queue = Mutex::new(VecDeque::from(each));
    let lanes: usize =
        std::env::var_os("SWITCH_LANES").and_then(|text| text.to_str()?.parse().ok()).unwrap_or(5).max(1);
    let others = (1..lanes).map(|_| async { work(Lane::open(world.clone()).await?, &queue).await });
    let (done, more) = futures::future::try_join(work(first, &queue), try_join_all(others)).await?;
    let reached = done + more.into_iter().sum::<usize>();
    println!("{reached} of {wanted} points reached: one master each, nothing lost");
    // What is repeated differs from run to run.
    ensure!(reached * 10 >= wanted * 8, "only {reached} of {wanted} points were reached");
    Ok(())
}

/// Takes point after point; how many were reached.
async fn work(mut lane: Lane, queue: &Mutex<VecDeque<Point>>) -> Result<usize> {
    let mut reached = 0;
    loop {
        let next = queue.lock().ok().and_then(|mut queue| queue.pop_front());
        let Some(point) = next else { break };
        let ended = lane.switch(Some(&point)).await;
        let ended = ended.with_context(|| format!("{}: {point:?}", lane.scene.namespace))?;
        let hit = if ended.hit { "" } else { " (not reached)" };
        let moved = if ended.moved { "moved" } else { "stayed" };
        println!("{point:?}{hit}: {moved}, {} writes kept", ended.acknowledged);
        reached += usize::from(ended.hit);
    }
    lane.scene.close().await?;
    Ok(reached)
}
