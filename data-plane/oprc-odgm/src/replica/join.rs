//! How the etcd of a node becomes a member of the grid.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use oprc_cp_storage::{EtcdAdmin, EtcdMember};
use serde::{Deserialize, Serialize};
use tokio::{task::JoinSet, time::sleep};

use super::{
    cluster::{Cluster, Phase},
    etcd_child::{Start, data_folder},
    peer_client::PeerClient,
    roster::{Hello, HelloReply, Roster},
};
use crate::config::ReplicaConfig;

const CALL_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// A node that wants to be added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JoinRequest {
    name: String,
    index: u32,
    peer_url: String,
    /// From an earlier attempt.
    member_id: Option<u64>,
}

/// The member that was added, without a vote.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JoinReply {
    member_id: u64,
    initial_cluster: String,
}

/// Decides how etcd starts, with the help of other nodes. Waits as long as that takes.
pub(crate) struct Joiner<'a> {
    pub(crate) config: &'a ReplicaConfig,
    pub(crate) data_dir: &'a Path,
    pub(crate) roster: &'a Roster,
    pub(crate) client: &'a Arc<PeerClient>,
    pub(crate) cluster: &'a Cluster,
}

/// What the other first members say.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// All agree, and none knows another incarnation.
    Bootstrap,
    /// The grid existed before: this node's disk was lost, or it was never needed.
    Join,
    /// Another node wants to begin with fewer members.
    Fewer(u32),
    Wait,
}

/// `others` is the number of the other first members.
fn verdict(incarnation: &str, initial: u32, others: usize, replies: &[HelloReply]) -> Verdict {
    if replies.iter().any(|it| it.has_joined || it.incarnation != incarnation) {
        return Verdict::Join;
    }
    match replies.iter().filter_map(|it| it.initial).min() {
        Some(fewer) if fewer < initial => Verdict::Fewer(fewer),
        _ if replies.len() == others && replies.iter().all(|it| it.initial == Some(initial)) => {
            Verdict::Bootstrap
        }
        _ => Verdict::Wait,
    }
}

impl Joiner<'_> {
    pub(crate) async fn decide(&self) -> io::Result<Start> {
        let folder = data_folder(self.data_dir);
        if folder.is_dir() {
            if has_log(&folder) {
                if !self.was_removed().await {
                    return Ok(Start::Existing);
                }
                tracing::warn!("this node was removed from the grid, deleting its data");
            }
            fs::remove_dir_all(folder)?;
        }
        if self.roster.get().has_run {
            self.roster.update(|record| {
                (record.member_id, record.has_run, record.has_joined) = (None, false, true);
            })?;
        }
        loop {
            if let Some(start) = self.attempt().await? {
                return Ok(start);
            }
            sleep(RETRY_DELAY).await;
        }
    }

    async fn attempt(&self) -> io::Result<Option<Start>> {
        let desired = self.cluster.desired();
        let record = self.roster.get();
        let initial = match record.initial {
            Some(initial) if record.has_bootstrapped => initial,
            // Those that aren't desired any more may never start.
            known => known.unwrap_or(desired).min(desired),
        };
        if record.has_joined || record.member_id.is_some() || self.config.index >= initial {
            return self.join(desired).await;
        }
        self.cluster.set_phase(Phase::Starting);
        self.roster.update(|record| record.initial = Some(initial))?;
        let mut replies = self.say_hello(&record.incarnation, initial).await;
        let mut initial = initial;
        // A node that has started with another number doesn't change it.
        if let Some(fixed) = replies.iter().find_map(HelloReply::fixed_initial)
            && fixed != initial
        {
            initial = fixed;
            self.roster.update(|record| record.initial = Some(initial))?;
            replies = self.say_hello(&record.incarnation, initial).await;
        }
        let others = usize::try_from(initial).unwrap_or_default().saturating_sub(1);
        match verdict(&record.incarnation, initial, others, &replies) {
            Verdict::Bootstrap => {
                self.roster.update(|record| record.has_bootstrapped = true)?;
                let member = |index| {
                    format!("{}={}", self.config.name_of(index), self.config.etcd_peer_url(index))
                };
                let members: Vec<_> = (0..initial).map(member).collect();
                Ok(Some(Start::Bootstrap { initial_cluster: members.join(",") }))
            }
            Verdict::Join => {
                tracing::warn!("the grid exists already, this node joins it with an empty disk");
                self.roster.update(|record| record.has_joined = true)?;
                self.join(desired).await
            }
            Verdict::Fewer(fewer) => {
                self.roster.update(|record| record.initial = Some(fewer))?;
                Ok(None)
            }
            Verdict::Wait => Ok(None),
        }
    }

    async fn say_hello(&self, incarnation: &str, initial: u32) -> Vec<HelloReply> {
        let hello =
            Hello { name: self.config.name.clone(), incarnation: incarnation.to_owned(), initial };
        let mut calls = JoinSet::new();
        for index in (0..initial).filter(|it| *it != self.config.index) {
            let (client, hello) = (self.client.clone(), hello.clone());
            let address = self.config.peer_address(index);
            calls.spawn(
                async move { client.call(&address, "/hello", &hello, CALL_TIMEOUT).await.ok() },
            );
        }
        calls.join_all().await.into_iter().flatten().collect()
    }

    /// Asks one node after the other to be added.
    async fn join(&self, desired: u32) -> io::Result<Option<Start>> {
        if self.config.index >= desired {
            self.cluster.set_phase(Phase::Removed);
            return Ok(None);
        }
        self.cluster.set_phase(Phase::Joining);
        let request = JoinRequest {
            name: self.config.name.clone(),
            index: self.config.index,
            peer_url: self.config.etcd_peer_url(self.config.index),
            member_id: self.roster.get().member_id,
        };
        for index in (0..desired).filter(|it| *it != self.config.index) {
            let address = self.config.peer_address(index);
            match self.client.call(&address, "/join", &request, CALL_TIMEOUT).await {
                Ok(JoinReply { member_id, initial_cluster }) => {
                    self.roster.update(|record| {
                        record.member_id = Some(member_id);
                        record.has_joined = true;
                    })?;
                    return Ok(Some(Start::Join { initial_cluster }));
                }
                Err(error) => tracing::info!(%error, node = index, "cannot join yet, retrying"),
            }
        }
        Ok(None)
    }

    /// Whether a majority of the others has removed this node while it was stopped.
    async fn was_removed(&self) -> bool {
        let Some(own) = self.roster.get().member_id else { return false };
        for index in (0..self.cluster.desired()).filter(|it| *it != self.config.index) {
            let address = self.config.peer_address(index);
            let members: Result<Vec<u64>, _> =
                self.client.call(&address, "/members", &(), CALL_TIMEOUT).await;
            if let Ok(members) = members {
                return !members.contains(&own);
            }
        }
        false
    }
}

/// Whether etcd has data. It creates folders before it joins the others, and its log afterwards.
fn has_log(folder: &Path) -> bool {
    let files = fs::read_dir(folder.join("member").join("wal"));
    files.into_iter().flatten().flatten().any(|it| it.path().extension() == Some("wal".as_ref()))
}

/// Adds a node, after its former member, whose data is lost, was removed. An error is for people.
pub(crate) async fn admit(
    admin: &EtcdAdmin,
    desired: u32,
    request: &JoinRequest,
) -> Result<JoinReply, String> {
    let JoinRequest { name, index, peer_url, member_id } = request;
    if *index >= desired {
        return Err(format!("{name} is not one of the {desired} members that are desired"));
    }
    let members = admin.members(false).await.map_err(|error| error.to_string())?;
    if let Some(known) = members.iter().find(|it| Some(it.id) == *member_id) {
        return Ok(reply(known.id, name, &members));
    }
    for former in members.iter().filter(|it| it.peer_urls.contains(peer_url)) {
        tracing::warn!(node = name, id = former.id, "removing a member whose disk was lost");
        admin.remove(former.id).await.map_err(|error| error.to_string())?;
    }
    let (added, members) = admin.add_learner(peer_url).await.map_err(|error| error.to_string())?;
    tracing::info!(node = name, id = added.id, "added a member");
    Ok(reply(added.id, name, &members))
}

fn reply(member_id: u64, name: &str, members: &[EtcdMember]) -> JoinReply {
    let urls = members.iter().flat_map(|member| {
        let name = if member.id == member_id { name } else { member.name.as_str() };
        member.peer_urls.iter().map(move |url| format!("{name}={url}"))
    });
    JoinReply { member_id, initial_cluster: urls.collect::<Vec<_>>().join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(incarnation: &str, initial: Option<u32>, has_joined: bool) -> HelloReply {
        let incarnation = incarnation.to_owned();
        HelloReply { incarnation, initial, has_joined, has_bootstrapped: false }
    }

    #[test]
    fn bootstraps_only_if_all_others_agree() {
        let agree = || known("a", Some(3), false);
        assert_eq!(verdict("a", 3, 2, &[agree(), agree()]), Verdict::Bootstrap);
        assert_eq!(verdict("a", 1, 0, &[]), Verdict::Bootstrap);
        assert_eq!(verdict("a", 3, 2, &[agree()]), Verdict::Wait);
        let more = known("a", Some(5), false);
        assert_eq!(verdict("a", 3, 2, &[agree(), more]), Verdict::Wait);
        let fewer = known("a", Some(1), false);
        assert_eq!(verdict("a", 3, 2, &[agree(), fewer]), Verdict::Fewer(1));
    }

    #[test]
    fn folders_without_a_log_are_no_data() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("member/wal");
        fs::create_dir_all(&log).unwrap();
        fs::write(log.join("0.tmp"), "").unwrap();
        assert!(!has_log(folder.path()));
        fs::write(log.join("0000000000000000-0000000000000000.wal"), "").unwrap();
        assert!(has_log(folder.path()));
    }

    #[test]
    fn a_node_with_a_lost_disk_never_bootstraps() {
        let agree = || known("a", Some(3), false);
        let other = known("b", Some(3), false);
        assert_eq!(verdict("a", 3, 2, &[agree(), other.clone()]), Verdict::Join);
        assert_eq!(verdict("a", 3, 2, &[other]), Verdict::Join);
        assert_eq!(verdict("a", 3, 2, &[agree(), known("a", None, true)]), Verdict::Join);
    }
}
