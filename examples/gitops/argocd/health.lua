-- Health of every kind of Muster for Argo CD, by the conditions that the operator writes.
-- examples/gitops/flux/muster.yaml has the same rules for Flux; docs/gitops.md explains them.
local health = {}
local found = {}
for _, condition in ipairs((obj.status or {}).conditions or {}) do
  found[condition.type] = condition
end
local ready = found.Ready or {}
local reason = ready.reason or ""

local function is(type, status)
  return found[type] ~= nil and found[type].status == status
end

local function any_of(name, names)
  for _, each in ipairs(names) do
    if name == each then
      return true
    end
  end
  return false
end

local function say(status, message)
  health.status = status
  health.message = message or ""
  return health
end

if obj.metadata.deletionTimestamp ~= nil then
  return say("Progressing", "is being deleted")
end
if ready.status == nil or (ready.observedGeneration or 0) ~= obj.metadata.generation then
  return say("Progressing", "the operator has not seen this generation yet")
end

-- What comes in the same sync, in no order: the other object, the Secret with the password.
if any_of(reason, {"ClusterNotFound", "TopicNotFound", "PasswordNotKept"}) then
  return say("Progressing", ready.message)
end
if obj.kind == "OffsetsTopic" and reason == "NoTopic" then
  return say("Progressing", ready.message)
end

-- A person has to act.
if is("Stalled", "True") then
  return say("Degraded", found.Stalled.message)
end
for _, type in ipairs({"Damaged", "CrdOutdated"}) do
  if is(type, "True") then
    return say("Degraded", found[type].message)
  end
end
if is("CertificatesDue", "True") and ready.status == "True" then
  return say("Degraded", found.CertificatesDue.message)
end
if any_of(reason, {"UsersFromFiles", "NameTaken", "InvalidAcls", "BackupFailed", "BackupDamaged", "NoBackupStore"}) then
  return say("Degraded", ready.message)
end
if obj.kind == "OffsetsPartition" and obj.status.state == "Leaderless" and reason ~= "Hibernated" then
  return say("Degraded", ready.message)
end

if any_of(reason, {"Suspended", "Hibernated", "RolloutPaused"}) then
  return say("Suspended", ready.message)
end
if obj.kind == "OffsetsPartition" and reason == "Retired" then
  return say("Healthy", ready.message)
end
-- All that this object declares is so; an OffsetsTopic of a later wave has to be let through.
if obj.kind == "CoordinatorCluster" and reason == "NoTopic" and (obj.status.readyPods or 0) >= obj.spec.pods then
  return say("Healthy", ready.message)
end

if ready.status ~= "True" or is("Reconciling", "True") then
  return say("Progressing", ready.message)
end
if is("Degraded", "True") then
  return say("Progressing", found.Degraded.message)
end
if is("Mirrored", "False") then
  return say("Progressing", found.Mirrored.message)
end
return say("Healthy", ready.message)
